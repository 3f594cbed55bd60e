"""Kubernetes client library: API client, informer, work queue, leader election, event recorder.

It does not depend on the meaning of a ModelDeployment, so both the operator and the command line use it.
Out of scope: rendering of objects (`halcyon.render`) and control loops (`halcyon.control`).
"""
