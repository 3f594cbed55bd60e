"""The agent that runs next to HAProxy in a model's balancer pod, and the HAProxy configuration that it writes.

Imports are kept to a minimum because the agent's memory limit is 48 MiB: no pydantic, kubernetes, kopf or
prometheus_client (a test enforces it). Out of scope: scaling decisions, and writes to the Kubernetes API.
"""
