"""Measurements of the table `tune`: tuning a model, and the advice about one."""
