"""Detection, in config.pbtxt, of models that keep state between requests.

All requests of a sequence must go to the same server.

The module uses only the standard library, because the operator and the fetcher load it. It does not parse the file with
protobuf, because files with unknown fields must work, too.
"""

from __future__ import annotations

import re

REPORT = '{"sequences":true}'
"""Termination message of the fetcher for a model that keeps state between requests."""

# Comments and quoted texts may contain each other's delimiters; the one that starts first applies.
_ASIDE = re.compile(r"""#[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""")
_BATCHING = re.compile(r"(?<![\w.\[/])sequence_batching\s*:?\s*[{<]")


def in_config(text: str) -> bool:
    """Return True if the text of a config.pbtxt enables Triton's sequence batcher."""
    return _BATCHING.search(_ASIDE.sub(" ", text)) is not None
