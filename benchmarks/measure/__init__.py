"""Measurements of `halcyon bench` itself, against values that are known without it."""
