"""Markers in the model repository, a volume that the fetcher and the server container share."""

from typing import Final

COMPLETE: Final = ".halcyon-complete"
"""Name of a file in the repository's top folder that marks the model's configuration as complete.

With the file, Triton need not complete the configuration. Triton ignores files in the top folder, and no model can have
this name.
"""
INSTANCES: Final = ".halcyon-instances"
"""Name of a file with the number of instances that share the pod's CPU limit. It exists only for several instances."""
STUB_EXIT: Final = "halcyon.stub."
"""Prefix of folder names in the repository's top folder. The server's container creates one when a Python stub ends.

The rest of the name describes how the stub process ended, for example `exit-139` or `signal-9.oom`. Triton lists each
folder in its repository index, where agents read the name. No model can have such a name.
"""
