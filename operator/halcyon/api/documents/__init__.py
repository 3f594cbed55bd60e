"""Documents that Halcyon's parts pass each other: the balancer's plan, the agent's report, notices of pods, the model's overlay.

The agent and the fetcher import them, so pydantic stays out.
"""
