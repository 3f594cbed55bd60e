"""API of ModelDeployment: its fields, rules and conditions, and the documents that Halcyon's components exchange. Pure.

This package imports no other package of Halcyon. Its modules import as few others as possible, so that small processes
(the agent, the fetcher) load only what they use.
"""
