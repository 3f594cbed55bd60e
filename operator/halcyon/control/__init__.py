"""The controller: ModelDeployments become objects, and what happens to those becomes their status.

`reconcile` is the loop: it takes a scope from `state`, lets `acceptance`, `rollout` and `desired` plan it, applies the plan
and writes what `status` derives. `autoscaling` decides replicas beside it, `reporting` shows both, and `runtime` starts and
stops everything. Plans and statuses are pure; the API server is reached through `halcyon.kube` alone.
"""
