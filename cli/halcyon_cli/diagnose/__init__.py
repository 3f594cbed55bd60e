"""Diagnosis of a model's problems: the facts, the rules for models and pods, and a redacted bundle."""
