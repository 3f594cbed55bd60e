"""Marker files that the fetcher writes to the model repository for the container of the server, which mounts it, too."""

from typing import Final

COMPLETE: Final = ".halcyon-complete"
"""Name of the file in the repository's top folder which marks the model's configuration as complete, so Triton need not complete it.

Triton ignores files in the top folder, and no model can have this name.
"""
