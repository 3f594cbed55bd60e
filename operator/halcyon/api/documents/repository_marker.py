"""Marker files that the fetcher writes to the model repository for the container of the server, which mounts it, too."""

from typing import Final

COMPLETE: Final = ".halcyon-complete"
"""Name of the file in the repository's top folder which marks the model's configuration as complete, so Triton need not complete it.

Triton ignores files in the top folder, and no model can have this name.
"""
STUB_EXIT: Final = "halcyon.stub."
"""Prefix of a folder in the repository's top folder, which the server's container creates when a Python stub process ends.

The rest of the name is how it ended, for example `exit-139` or `signal-9.oom`. Triton lists each folder in its repository index, where
agents read the name. No model can have such a name.
"""
