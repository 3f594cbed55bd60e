"""Benchmarks of the data plane's cost and losses, compared with HAProxy alone, nginx, Envoy and a plain Service.

Start them with `python -m benchmarks.dataplane` (`make bench-dataplane`). Proxies are compared on loopback, in
alternating turns of a few seconds. They use the same Triton servers, which run outside of a cluster from the cluster's
image. Parts that depend on Kubernetes (rollouts, evictions, scaling from zero) run on the embedded cluster.
build/bench/dataplane.json and the page list which components were simulated.
"""
