"""Variants of a model in other precisions, written as Triton model repositories and compared on the user's data."""
