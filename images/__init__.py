"""Builds the container images without a container daemon, keeps them as OCI archives, and pushes them to a registry.

What is in an image stands in its Dockerfile, which plain `docker build` takes as well. How an archive gets into a cluster
is the cluster's business (`e2e/cluster`).
"""
