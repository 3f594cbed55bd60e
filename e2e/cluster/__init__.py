"""The embedded Kubernetes that tests and the demo run on: real parts, one machine, nothing left behind.

`python -m e2e.cluster --help` is the way in; `e2e.cluster.cluster` is the same for Python. What runs on the cluster
(images, charts, scenarios) doesn't belong here.
"""
