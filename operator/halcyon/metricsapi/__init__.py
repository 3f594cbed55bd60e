"""The server of `external.metrics.k8s.io`: what the HPA asks, who may ask it, and the certificates it is asked over.

Not here: where the values come from (a `ReadingSource` given by the caller), and any call to Kubernetes: token and
access reviews are Protocols in `auth`.
"""
