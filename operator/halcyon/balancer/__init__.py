"""The agent beside HAProxy in a model's balancer pod, and HAProxy's configuration.

Its imports stay few: the agent may take 48 MiB. No pydantic, no kubernetes, no kopf, no prometheus_client (a test holds that).
Scaling decisions and everything that writes to the Kubernetes API are elsewhere.
"""
