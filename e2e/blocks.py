"""The blocks of code in a page of Markdown, and the commands in them."""

import re
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROMPT = "$ "
_HERE = re.compile(r"<<'(\w+)'$")


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks in that language, in order, as they stand."""
    return [text for told, text in _BLOCK.findall(page.read_text()) if told == language]


def commands(page: Path) -> list[str]:
    """The commands in its blocks of `console`, in order: what stands behind a prompt, and the lines that go on with it."""
    found: list[str] = []
    goes_on = ""
    for line in "".join(blocks(page, "console")).splitlines():
        if goes_on:
            found[-1] += f"\n{line}"
            if goes_on not in {"\\", "|", line}:
                continue  # of a text up to that word
        elif line.startswith(_PROMPT):
            found.append(line.removeprefix(_PROMPT))
        else:
            continue  # what the one before prints
        here = _HERE.search(line)
        goes_on = here[1] if here else line[-1:] if line.endswith(("\\", "|")) else ""
    return found
