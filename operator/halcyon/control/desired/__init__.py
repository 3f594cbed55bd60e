"""The objects that should exist for a scope: what to apply, what to prune, and in which order. Pure."""
