"""Builds of the container images without a container daemon. Images are stored as OCI archives and can be pushed.

The contents of an image are defined by its Dockerfile, which also works with plain `docker build`. Out of scope:
loading an archive into a cluster (`e2e/cluster`).
"""
