"""Documents that Halcyon's components exchange, for example the balancer's plan and the agents' reports.

Small processes (the agent, the fetcher, the batch inference runner) import the modules in this package, so these don't
use pydantic. The exception is `measured_capacity`, which these processes don't import.
"""
