"""The planner: the replicas a model needs, from its arrival rate, its backlog and the measured behaviour of its pods.

This package holds `plan` and the pure parts it consists of. Out of scope: the HPA's rules (`scaling.hpa`), collecting signals
(`signals`), writing the replicas (`control`).
"""
