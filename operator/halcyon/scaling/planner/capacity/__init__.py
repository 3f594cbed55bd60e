"""Capacity of replicas.

The package contains service times, queueing formulas, the replicas that a backlog needs, and the maximum length of
queues from which balancers reject requests.
"""
