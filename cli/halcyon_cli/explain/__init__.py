"""The reason for a model's replica count, as data."""
