"""Documents that Halcyon's components exchange: the balancer's plan, reports, pod notices, overlays, results, progress.

Small processes (the agent, the fetcher, the runner of batch inference) import these modules. Therefore none of them but
`measured_capacity`, which these processes don't import, uses pydantic.
"""
