"""Documents that Halcyon's components exchange: the balancer's plan, reports, pod notices, overlays, results, progress.

The agent and the fetcher import these modules, except `measured_capacity`. Only that module uses pydantic.
"""
