"""Starts of server pods, watched from the pod's creation until it is ready."""
