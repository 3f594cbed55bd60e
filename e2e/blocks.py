"""The blocks of code in a page of Markdown."""

import re
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks in that language, in order, as they stand."""
    return [text for told, text in _BLOCK.findall(page.read_text()) if told == language]
