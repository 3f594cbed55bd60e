"""Parser of the code blocks in a Markdown page, and of the commands in them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROMPT = "$ "
_HERE = re.compile(r"<<'(\w+)'$")
_INVOCATION = re.compile(
    r"(?:^|[|;&(!`] ?|\$ )(?:kubectl )?halcyon (?P<command>[a-z]+)"
    r"|\bpython -m (?P<module>(?:demo|e2e|images|benchmarks|halcyon_simulator)\b[\w.]*)",
    re.MULTILINE,
)
_ARGUMENTS = re.compile(r"""(?:"[^"]*"|'[^']*'|[^"'`|;&<>#()\n])*""")


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


def invocations(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of `halcyon` and each module of this repository that the text runs, with its arguments.

    They are at the beginning of a line, in code, in a pipe, in a list of commands or in a substitution.
    """
    text = text.replace("\\\n", " ")
    for found in _INVOCATION.finditer(text):
        arguments = _ARGUMENTS.match(text, found.end())
        yield found["command"] or found["module"], shlex.split(arguments[0] if arguments else "")
