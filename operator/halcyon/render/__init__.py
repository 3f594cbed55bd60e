"""Builders of a model's Kubernetes objects as plain dicts, from the accepted spec. Pure.

Each module builds one kind of object or a few related ones. `names` defines the names of all objects. Out of scope: writing the objects
(`halcyon.control`).
"""
