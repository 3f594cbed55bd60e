"""Check of a config.pbtxt for literals that protobuf's Python parser accepts but Triton's parser rejects.

Triton receives a file that Halcyon doesn't change as it is. Halcyon writes changed files in a form that Triton accepts.
"""

from __future__ import annotations

import re

from halcyon.model_config.config_pbtxt import FILE
from halcyon.model_config.errors import ModelConfigError

_TOKEN = re.compile(
    r"""#[^\n]*|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|[A-Za-z_][\w+-]*|(?P<number>[0-9+.-][\w+.-]*|[^\x00-\x7f])"""
)
_BAD_NUMBER = re.compile(r"\+|.*_|-?0[bBoO]|[^\x00-\x7f]")
_ESCAPES = "abfnrtvxXuU01234567\\'\"?"
"""Characters that may follow a backslash in a quoted text."""


def check(content: bytes) -> None:
    """Check the literals of a config.pbtxt that `config_pbtxt` has parsed, including those of unknown fields.

    Raises:
        ModelConfigError: Triton would reject a literal; the message has line, column and text.
    """
    text = content.decode(errors="replace")
    for token in _TOKEN.finditer(text):
        start = token.start()
        if (number := token["number"]) and _BAD_NUMBER.match(number):
            raise _error(text, start, f"{number} is not a number for Triton; write only digits, for example 1000 or -1")
        for escape in re.finditer(r"\\(.)", token["text"] or ""):
            if escape[1] not in _ESCAPES:
                good = f"\\\\{escape[1]} for a backslash and the character"
                raise _error(
                    text, start + escape.start(), f"{escape[0]} is not an escape for Triton; for example {good}"
                )


def _error(text: str, at: int, problem: str) -> ModelConfigError:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return ModelConfigError(f"{FILE}, line {line}, column {column}: {problem}")
