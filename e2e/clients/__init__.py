"""NVIDIA's own clients, to be run against a model's address."""
