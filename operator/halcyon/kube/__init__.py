"""A client-side Kubernetes library: client, informer, work queue, leader election, event recorder.

It knows the API server and no ModelDeployment's meaning, so that the operator and the command line both use it.
Out of scope: what objects should look like (`halcyon.render`) and what to do about them (`halcyon.control`).
"""
