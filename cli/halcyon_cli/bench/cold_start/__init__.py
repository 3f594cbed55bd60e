"""Observation of cold starts of server pods, from the creation of a pod until it is ready."""
