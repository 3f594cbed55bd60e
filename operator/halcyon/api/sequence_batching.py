"""Whether a model keeps a state between requests, by its config.pbtxt: then those of one sequence belong to one server.

Standard library only: the operator and the fetcher read it. Not the protobuf, since a file with fields that nobody here knows is
served too.
"""

from __future__ import annotations

import re

REPORT = '{"sequences":true}'
"""What the fetcher leaves in its termination message for such a model."""

# Comments and quoted texts may hold anything; whichever begins first is one.
_ASIDE = re.compile(r"""#[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""")
_BATCHING = re.compile(r"(?<![\w.\[/])sequence_batching\s*:?\s*[{<]")


def in_config(text: str) -> bool:
    """Whether the file turns Triton's sequence batcher on."""
    return _BATCHING.search(_ASIDE.sub(" ", text)) is not None
