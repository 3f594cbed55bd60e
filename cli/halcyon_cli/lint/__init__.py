"""Offline validation of manifests, with line numbers."""
