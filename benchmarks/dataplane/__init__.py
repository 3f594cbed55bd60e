"""What the data plane costs and loses, measured: the balancer beside HAProxy alone, nginx, Envoy and a plain Service.

`python -m benchmarks.dataplane` (`make bench-dataplane`) is the way in. Proxies are compared on loopback, in turns of a few
seconds in one run, in front of the same Tritons, which run outside of a cluster from the cluster's own image; what Kubernetes
has a part in (rollouts, evictions, zero) runs on the embedded cluster. What is a stand-in is said in
build/bench/dataplane.json and on the page.
"""
