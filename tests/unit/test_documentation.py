"""What docs/ says holds together: links lead somewhere, and what it shows as YAML is what the API and the chart take.

Its commands are run by `make test-guides`, so each must stand where that finds it.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from e2e.blocks import blocks, commands
from e2e.guides import elsewhere
from halcyon_cli.lint.checks import check
from tests.yaml_text import all_loaded, loaded

WEIGHT_BYTES = 50_000
"""All pages are read."""

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
VALUES = "# values.yaml"
_BLOCK = re.compile(r"^```.*?^```$|^    .*?$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(
    r"^    (?:\$ |(?:kubectl|helm|make|halcyon|python|docker|kind|cosign|curl|git|pip) )", re.MULTILINE
)
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Of its headings, as GitHub makes them."""
    headings = _HEADING.findall(_BLOCK.sub("", page.read_text()))
    plain = (re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()) for heading in headings)
    return frozenset(heading.strip().replace(" ", "-") for heading in plain)


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_CODE.sub("", _BLOCK.sub("", page.read_text()))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_commands_stand_in_blocks_that_are_run(page: Path) -> None:
    assert _INDENTED.findall(_FENCED.sub("", page.read_text())) == []
    assert all(block.startswith("$ ") for block in blocks(page, "console"))
    said = _FENCED.findall(page.read_text())
    assert not [block for block in said if block.startswith(("```bash", "```shell", "```\n$ "))]


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "concepts").glob("*.md")), ids=shown)
def test_a_concept_has_a_picture(page: Path) -> None:
    drawn = [line for line in page.read_text().splitlines() if re.search("──|-->|■", line) and not line.startswith("|")]
    assert drawn


def test_targets_of_make_are_there() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = {
        word
        for page in PAGES
        for command in [*commands(page), *"".join(blocks(page, "sh")).splitlines()]
        if (found := re.match(r"(?:\S+=\S+ )*make ([^#]*)", command))
        for word in found[1].split()
        if "=" not in word
    }
    assert "demo" in asked
    assert asked - targets == set()


def test_commands_run_elsewhere_are_on_a_page_and_their_tests_exist() -> None:
    shown_ones = [command for page in PAGES for command in commands(page)]
    for start in elsewhere.RUN_BY | elsewhere.NOBODY:
        assert any(command.startswith(start) for command in shown_ones), start
    for test in elsewhere.RUN_BY.values():
        assert (ROOT / test).is_file(), test


def test_a_command_goes_on_where_its_line_says_so(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ one \\\n    --more\nprinted\n$ two |\n  three\nprinted\n```\n\n"
        "```sh\nnot here\n```\n\n```console\n$ cat > f <<'EOF'\n$ a\nb\nEOF\nprinted\n$ four # why\n```\n"
    )
    assert commands(page) == ["one \\\n    --more", "two |\n  three", "cat > f <<'EOF'\n$ a\nb\nEOF", "four # why"]


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    reached = {(ROOT / "docs" / link.partition("#")[0]).resolve() for link in _LINK.findall(index)}
    apart = {ROOT / "docs" / "decisions", ROOT / "docs" / "runbooks"}
    pages = {page for page in PAGES if page.is_relative_to(ROOT / "docs") and not apart & set(page.parents)}

    assert pages - reached == {ROOT / "docs" / "README.md"}


def test_concept_pages_name_no_module_and_show_no_measurement() -> None:
    """They are for users. Contributors have docs/inside-a-balancer.md and others, and figures are in docs/benchmarks."""
    pages = sorted((ROOT / "docs" / "concepts").glob("*.md"))
    wrong = re.compile(r"\w\.py\b|\btests/|\[measured\]|\bcallgrind\b|\bresident\b|median|instructions", re.IGNORECASE)
    found = {
        f"{page.name}:{number}": line
        for page in pages
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if wrong.search(line)
    }
    assert len(pages) >= 8
    assert found == {}


@cache
def digits() -> dict[str, Any]:
    documents = all_loaded((ROOT / "manifests" / "examples" / "digits.yaml").read_text())
    return next(document for document in documents if document["kind"] == "ModelDeployment")


def merged(over: Any, under: Any) -> Any:
    """`over` laid over `under`, map by map."""
    if not isinstance(over, dict) or not isinstance(under, dict):
        return over
    return under | {key: merged(value, under.get(key)) for key, value in over.items()}


@cache
def chart() -> tuple[Any, jsonschema.Draft202012Validator]:
    """Values of halcyon that can be installed, and what says so."""
    folder = ROOT / "charts" / "halcyon"
    registry = {"images": {"registry": "registry.example.com"}}
    values = merged(registry, loaded((folder / "values.yaml").read_text()))
    return values, jsonschema.Draft202012Validator(json.loads((folder / "values.schema.json").read_text()))


# The reference shows parts of parts, and is made from the models.
YAML = [(page, block) for page in PAGES if page.parent.name != "reference" for block in blocks(page, "yaml")]


@pytest.mark.parametrize(("page", "block"), YAML, ids=lambda part: shown(part) if isinstance(part, Path) else "")
def test_documented_yaml_is_valid(page: Path, block: str) -> None:
    if block.startswith(VALUES):
        values, validator = chart()
        assert [error.message for error in validator.iter_errors(merged(loaded(block), values))] == []
        return
    if block.startswith("# prometheus.yml"):
        assert "scrape_configs" in loaded(block)
        return
    if block.startswith("spec:"):
        fragment = loaded(block)
        # Who names a source means that one and not the example's beside it.
        base = (
            digits()
            if "source" not in fragment["spec"].get("model", {})
            else merged({"spec": {"model": {"source": None}}}, digits())
        )
        block = yaml.safe_dump(merged(fragment, base))
    assert all({"apiVersion", "kind"} <= document.keys() for document in all_loaded(block)), (
        "neither values nor objects"
    )
    found = [f"{one.line}: {one.message}" for one in check(block, str(page)).findings if one.level == "error"]
    assert found == []
