"""Reads the world: the agents' records become observations with an age.

Here: who may speak for a model (`collector`), which values can be true (`vetting`), how several agents' records become
one picture (`hub`, `series`). Not here: what follows from it (`halcyon.scaling`), and any call to Kubernetes.
"""
