"""NVIDIA's own clients, run against a model's address."""
