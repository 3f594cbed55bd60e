"""Measurements of the table `tune`: tuning a model, what is known and advised of one, and batch inference."""
