"""Capacity of replicas: the service line, queueing formulae, backlog, and queues bounded by rejection."""
