"""The agent beside HAProxy in a model's balancer pod, and HAProxy's configuration.

Imports stay few, because the agent's memory limit is 48 MiB: no pydantic, kubernetes, kopf or prometheus_client (a test enforces it).
Out of scope: scaling decisions, and everything that writes to the Kubernetes API.
"""
