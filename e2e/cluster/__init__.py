"""The embedded Kubernetes cluster of the tests and the demo: real components on one machine.

Everything is removed at the end. The command line is `python -m e2e.cluster --help`; the Python interface is
`e2e.cluster.cluster`. Out of scope: what runs on the cluster (images, charts, scenarios).
"""
