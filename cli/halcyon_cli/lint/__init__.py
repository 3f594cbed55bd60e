"""Validation of files without a cluster, with line numbers."""
