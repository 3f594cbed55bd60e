"""Structural schema of a model, for the CustomResourceDefinition and the reference pages, and descriptions of allowed values."""
