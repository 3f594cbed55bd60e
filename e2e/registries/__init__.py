"""Registries of models that run for tests, and what is installed for them."""
