"""The planner: how many replicas a model needs, from its arrival rate, its backlog and what its pods have shown.

What belongs here: `plan` and the pure parts that it is made of. Not here: the HPA's rules (`scaling.direct`), reading the
world (`signals`), writing the count (`control`).
"""
