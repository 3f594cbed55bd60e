"""Detection of models that keep state between requests, from config.pbtxt: the requests of one sequence belong on one server.

Standard library only: the operator and the fetcher read it. It does not use the protobuf, because a file with fields
that this version does not know is served too.
"""

from __future__ import annotations

import re

REPORT = '{"sequences":true}'
"""Text that the fetcher writes into its termination message for such a model."""

# Comments and quoted texts may contain each other's delimiters; the one that starts first counts.
_ASIDE = re.compile(r"""#[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""")
_BATCHING = re.compile(r"(?<![\w.\[/])sequence_batching\s*:?\s*[{<]")


def in_config(text: str) -> bool:
    """Return whether the file turns Triton's sequence batcher on."""
    return _BATCHING.search(_ASIDE.sub(" ", text)) is not None
