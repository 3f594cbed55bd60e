"""A client-side Kubernetes library: client, informer, work queue, leader election, event recorder.

It knows the API server, but not what a ModelDeployment means, so both the operator and the command line use it.
Out of scope: what objects should look like (`halcyon.render`) and what to do about them (`halcyon.control`).
"""
