"""A model in other precisions, as repositories for Triton, compared on the user's own data."""
