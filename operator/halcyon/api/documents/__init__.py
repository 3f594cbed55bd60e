"""Documents that Halcyon's components exchange: the balancer's plan, the agent's report, notices about pods, the model's overlay.

The agent and the fetcher import these modules, so the modules do not use pydantic.
"""
