"""Halcyon: autoscaled model serving on Kubernetes with NVIDIA Triton."""
