"""End-to-end tests and their infrastructure: the embedded cluster, load and scenarios.

Not part of any package or image.
"""
