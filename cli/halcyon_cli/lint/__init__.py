"""Offline validation of files, with line numbers."""
