"""Capacity of replicas: service times, queueing formulas, replicas for a backlog, and queues bounded by rejection."""
