"""Parser of the code blocks in a Markdown page, and of the commands in them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROMPT = "$ "
_HEREDOC = re.compile(r"<<'(\w+)'$")
_INVOCATION = re.compile(
    r"(?:^|[|;&(!`] ?|\$ )(?:kubectl )?halcyon (?P<command>[a-z]+)"
    r"|\bpython -m (?P<module>(?:demo|e2e|images|benchmarks|halcyon_simulator)\b[\w.]*)",
    re.MULTILINE,
)
_ARGUMENTS = re.compile(r"""(?:"[^"]*"|'[^']*'|[^"'`|;&<>#()\n])*""")


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks in that language, in order and unchanged."""
    return [text for block_language, text in _BLOCK.findall(page.read_text()) if block_language == language]


def commands(page: Path) -> list[str]:
    """Return the commands in the page's `console` blocks, in order."""
    return [command for block in blocks(page, "console") for command, _ in transcript(block)]


def transcript(block: str) -> list[tuple[str, str]]:
    """Return the commands of a `console` block, each with the output below it.

    A command is the text after a prompt, with its continuation lines.
    """
    pairs: list[tuple[str, str]] = []
    continuation = ""
    for line in block.splitlines():
        if continuation:
            command, _ = pairs[-1]
            pairs[-1] = (f"{command}\n{line}", "")
            if continuation not in {"\\", "|", line}:
                continue  # a text up to that word
        elif line.startswith(_PROMPT):
            pairs.append((line.removeprefix(_PROMPT), ""))
        else:
            if pairs:
                command, output = pairs[-1]
                pairs[-1] = (command, f"{output}{line}\n")
            continue
        heredoc = _HEREDOC.search(line)
        continuation = heredoc[1] if heredoc else line[-1:] if line.endswith(("\\", "|")) else ""
    return pairs


def invocations(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of `halcyon` and each module of this repository that the text runs, with its arguments.

    They are at the beginning of a line, in code, in a pipe, in a list of commands or in a substitution.
    """
    text = text.replace("\\\n", " ")
    for match in _INVOCATION.finditer(text):
        arguments = _ARGUMENTS.match(text, match.end())
        yield match["command"] or match["module"], shlex.split(arguments[0] if arguments else "")
