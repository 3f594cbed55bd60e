"""Server of the API `external.metrics.k8s.io`, which provides metrics to HPAs, with access control and certificates.

Out of scope: the source of the values, which is a `MetricSource` of the caller. The server itself sends no requests to
Kubernetes: token and access reviews are Protocols in `auth`.
"""
