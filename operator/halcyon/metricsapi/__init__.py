"""The server of `external.metrics.k8s.io`: the HPA's metrics, access control, and the certificates that it serves with.

Out of scope: the source of the values (a `MetricSource` given by the caller), and any call to Kubernetes by the server itself: token
and access reviews are Protocols in `auth`.
"""
