"""Builds of the container images without a container daemon. Images are kept as OCI archives and pushed to a registry.

The contents of an image are defined by its Dockerfile, which also works with plain `docker build`. Out of scope: how an
archive is loaded into a cluster (`e2e/cluster`).
"""
