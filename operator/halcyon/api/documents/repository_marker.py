"""Marker files from the fetcher to the server's container, beside the model in the repository that both mount."""

from typing import Final

COMPLETE: Final = ".halcyon-complete"
"""File in the repository's top folder: the model's configuration is complete, so Triton need not complete it. Triton
considers only folders there, and no model can have this name."""
