"""Likely causes of a model's problems: facts, rules for models and pods, and a redacted bundle."""
