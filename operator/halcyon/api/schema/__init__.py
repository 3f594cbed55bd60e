"""Structural schema of the API's resources, and descriptions of the values that it allows.

CustomResourceDefinitions, reference pages and error messages are generated from them.
"""
