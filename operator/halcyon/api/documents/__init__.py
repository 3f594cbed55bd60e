"""Documents that Halcyon's parts exchange: the balancer's plan, the agent's report, notices about pods, the model's overlay.

The agent and the fetcher import these modules, so they do not use pydantic.
"""
