"""Random samples of texts that people read, for judges who see each text without its code.

    python -m benchmarks.quality.samples docstrings 1      60 docstrings of operator/halcyon
    python -m benchmarks.quality.samples docs 1            60 sentences of README and docs, without decisions and generated
    pages
    python -m benchmarks.quality.samples messages 1        40 messages of conditions and events
    python -m benchmarks.quality.samples crd 1             all descriptions of the CRD

The second argument is the seed. The output has one line per text: number, location and text, separated by tabs.
"""

from __future__ import annotations

import ast
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"docstrings": 60, "docs": 60, "messages": 40, "crd": None}
GENERATED = {"cli.md", "conditions.md", "metrics.md", "modeldeployment.md", "agent-metrics.md"}
CRD = ROOT / "crds" / "modeldeployments.serving.halcyon.dev.yaml"
Sample = tuple[str, str]
"""A sample text as (location, text)."""


def main(argv: list[str]) -> int:
    """Print the sample of the given kind, with the given seed."""
    kind, seed = argv
    for number, (location, text) in enumerate(draw(kind, int(seed)), 1):
        print(f"{number}\t{location}\t{text}")
    return 0


def draw(kind: str, seed: int) -> list[Sample]:
    """Return a sample. The same seed and the same tree give the same sample."""
    texts = sorted(set(SOURCES[kind]()))
    size = SIZES[kind]
    return texts if size is None or size >= len(texts) else random.Random(seed).sample(texts, size)


def docstrings() -> Iterator[Sample]:
    """Yield every docstring in operator/halcyon as one line, including those below fields and constants."""
    for path in _files("operator/halcyon", ".py"):
        tree = ast.parse((ROOT / path).read_text())
        for literal in _bare_strings(tree):
            yield f"{path}:{literal.lineno}", _line(str(literal.value))


def docs() -> Iterator[Sample]:
    """Yield every sentence of at least eight words in the prose of the pages.

    Tables, code, headings and generated pages are left out.
    """
    for path in ["README.md", *_files("docs", ".md")]:
        if path.startswith(("docs/decisions", "docs/quality")) or Path(path).name in GENERATED:
            continue
        prose = re.sub(
            r"^---\n.*?^---\n|```.*?```|<!--.*?-->", "", (ROOT / path).read_text(), flags=re.DOTALL | re.MULTILINE
        )
        for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", prose):
            if block.lstrip().startswith(("|", "#", "![", ">")):
                continue
            for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`\[])", _line(block)):
                if len(sentence.split()) >= 8:
                    yield path, sentence


def messages() -> Iterator[Sample]:
    """Yield the messages in the status module and related modules.

    These are string literals and f-strings of at least five words.
    """
    for path in _files("operator/halcyon/control", ".py"):
        if not re.search(r"/(status|desired|rollout|acceptance|reconcile)/", path):
            continue
        tree = ast.parse((ROOT / path).read_text())
        skipped = {id(literal) for literal in _bare_strings(tree)}
        skipped |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if id(node) in skipped or not isinstance(node, ast.JoinedStr | ast.Constant):
                continue
            text = ast.unparse(node) if isinstance(node, ast.JoinedStr) else node.value
            if isinstance(text, str) and len(text.split()) >= 5:
                yield f"{path}:{node.lineno}", _line(text)


def crd() -> Iterator[Sample]:
    """Yield every description of the CustomResourceDefinition."""

    def walk(node: Any, path: str) -> Iterator[Sample]:
        if isinstance(node, dict):
            if isinstance(text := node.get("description"), str):
                yield path, _line(text)
            for key, value in node.items():
                yield from walk(value, f"{path}.{key}" if key not in {"properties", "items"} else path)
        elif isinstance(node, list):
            for value in node:
                yield from walk(value, path)

    yield from walk(yaml.safe_load(CRD.read_text())["spec"]["versions"][0], "")


SOURCES = {"docstrings": docstrings, "docs": docs, "messages": messages, "crd": crd}


def _bare_strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the strings that are statements: docstrings, also those below fields and constants."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else ():
            value = child.value if isinstance(child, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value


def _files(folder: str, suffix: str) -> list[str]:
    output = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", folder], check=True, capture_output=True, text=True
    ).stdout
    return [path for path in output.splitlines() if path.endswith(suffix)]


def _line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
