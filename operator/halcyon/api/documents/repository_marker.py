"""What the fetcher tells the server's container beside the model, in the repository that both mount."""

from typing import Final

COMPLETE: Final = ".halcyon-complete"
"""A file in the repository's top folder, where Triton looks for folders alone, and no model can have that name: the configuration lacks nothing, and Triton needn't complete it."""
