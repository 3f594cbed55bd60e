"""Parser of the code blocks in a Markdown page, and of the commands in them."""

import re
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROMPT = "$ "
_HERE = re.compile(r"<<'(\w+)'$")


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks in that language, in order and unchanged."""
    return [text for told, text in _BLOCK.findall(page.read_text()) if told == language]


def commands(page: Path) -> list[str]:
    """Return the commands in the page's `console` blocks, in order."""
    return [command for block in blocks(page, "console") for command, _ in transcript(block)]


def transcript(block: str) -> list[tuple[str, str]]:
    """Return the commands of a `console` block, each with the output below it.

    A command is the text after a prompt, with its continuation lines.
    """
    found: list[tuple[str, str]] = []
    goes_on = ""
    for line in block.splitlines():
        if goes_on:
            command, _ = found[-1]
            found[-1] = (f"{command}\n{line}", "")
            if goes_on not in {"\\", "|", line}:
                continue  # a text up to that word
        elif line.startswith(_PROMPT):
            found.append((line.removeprefix(_PROMPT), ""))
        else:
            if found:
                command, output = found[-1]
                found[-1] = (command, f"{output}{line}\n")
            continue
        here = _HERE.search(line)
        goes_on = here[1] if here else line[-1:] if line.endswith(("\\", "|")) else ""
    return found
