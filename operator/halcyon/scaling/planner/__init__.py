"""The planner: how many replicas a model needs, from its arrival rate, its backlog and measurements of its pods.

The package contains the function `plan`, and the pure functions and classes that it uses. Out of scope: the HPA's rules
(`scaling.hpa`), collecting signals (`signals`), writing the replicas (`control`).
"""
