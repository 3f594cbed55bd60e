"""Documents that Halcyon's components exchange, for example the balancer's plan and the agents' reports.

Small processes (the agent, the fetcher, the runner of batch inference) import these modules. Therefore these modules
don't use pydantic. The exception is `measured_capacity`, which these processes don't import.
"""
