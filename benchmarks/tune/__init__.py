"""Measurements of the table `tune`: tuning a model, what the autoscaler is taught, and the advice about a model."""
