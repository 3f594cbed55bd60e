"""What docs/ says holds together: links lead somewhere, and what it shows as YAML is what the API and the chart take.

Its commands are run by `make test-guides`, so each must stand where that finds it.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from benchmarks.adoption import documents
from e2e.blocks import blocks, commands
from e2e.guides import elsewhere, outcome
from e2e.guides.conftest import run_steps
from e2e.shown_output import Step, console_steps, difference, steps
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
    code_blocks = _FENCED.findall(page.read_text())
    assert not [block for block in code_blocks if block.startswith(("```bash", "```shell", "```\n$ "))]


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "concepts").glob("*.md")), ids=shown)
def test_a_concept_has_a_picture(page: Path) -> None:
    drawn = [line for line in page.read_text().splitlines() if re.search("──|-->|■", line) and not line.startswith("|")]
    assert drawn


def test_targets_of_make_are_there() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets_used = {
        word
        for page in PAGES
        for command in [*commands(page), *"".join(blocks(page, "sh")).splitlines()]
        if (match := re.match(r"(?:\S+=\S+ )*make ([^#]*)", command))
        for word in match[1].split()
        if "=" not in word
    }
    assert "demo" in targets_used
    assert targets_used - targets == set()


def test_pages_with_python_commands_name_the_environment_of_the_clone() -> None:
    """Debian has no program `python`, and the environment of `make bootstrap` isn't on the PATH."""
    running = [page for page in PAGES if any("python -m" in block for block in _FENCED.findall(page.read_text()))]
    assert len(running) > 2
    assert [shown(page) for page in running if ". .venv/bin/activate" not in page.read_text()] == []


def test_commands_run_elsewhere_are_on_a_page_and_their_tests_exist() -> None:
    listed = [command for page in PAGES for command in commands(page)]
    for start in elsewhere.RUN_BY | elsewhere.NOT_RUN:
        assert any(command.startswith(start) for command in listed), start
    for test in elsewhere.RUN_BY.values():
        assert (ROOT / test).is_file(), test


def test_listed_blocks_and_outputs_are_on_a_page_and_their_tests_exist() -> None:
    names = [step.name for page in PAGES for step in steps(page)]
    names += [step.name for page in PAGES for step in console_steps(page)]
    both = [*elsewhere.MEASURED, *elsewhere.NOT_COMPARED, *elsewhere.SHOWN_BY, *elsewhere.SUBSTITUTES]
    listed = [*elsewhere.BLOCKS, *both]
    assert [start for start in listed if not any(name.startswith(start) for name in names)] == []
    tests = elsewhere.BLOCKS_RUN_BY | elsewhere.SHOWN_BY
    assert [test for test in tests.values() if not (ROOT / test).is_file()] == []


def test_entries_for_commands_mean_no_block() -> None:
    ours = [*elsewhere.SHOWN_BY, *elsewhere.SUBSTITUTES]
    every = [*ours, *elsewhere.NOT_COMPARED]
    blocks_of = {start for page in PAGES for step in steps(page) for start in every if step.name.startswith(start)}
    console = {
        start for page in PAGES for step in console_steps(page) for start in every if step.name.startswith(start)
    }
    assert blocks_of & {*ours, *console} == set()


def test_words_that_differ_from_those_of_the_cluster_are_on_their_page() -> None:
    for page in PAGES:
        for step in console_steps(page):
            words = elsewhere.entry(step, elsewhere.SUBSTITUTES) or {}
            assert [word for word in words if word not in (step.output or "")] == [], step.name


def test_every_command_that_can_be_run_shows_its_output() -> None:
    listed = [step for page in documents.PAGES for step in console_steps(page) if not elsewhere.is_not_run(step)]
    assert len(listed) > 90
    assert [step.name for step in listed if step.output is None] == []


def test_a_shell_block_that_is_run_shows_its_output() -> None:
    """A block without an output prints nothing, which `make test-guides` checks; of those, none is a command of Halcyon's or Kubernetes'."""
    silent = [
        step.name
        for page in PAGES
        for step in steps(page)
        if step.output is None and elsewhere.entry(step, elsewhere.BLOCKS) is None
    ]
    assert silent == ['analyse.md: rm -r "$folder"']


PRINTED = """NAME     STATUS   READY   AGE
digits   Ready    1/1     38s
digits-a-6949fd4b5c-5xh7m on 10.42.0.17
digits-5041aaac2f since 2026-11-28T08:51:15Z, took 3.716941 s
Error from server (Forbidden): spec.scaling.maxReplicas is 6, but this site allows at most 4
"""
SHOWN = (
    PRINTED,
    PRINTED.replace("38s", "2m11s").replace("6949fd4b5c-5xh7m", "7fd8768df5-gl2gm").replace("10.42.0.17", "10.43.7.1"),
    PRINTED.replace("5041aaac2f", "805e3664a1").replace("08:51:15", "09:00:00").replace("3.716941 s", "52 ms"),
    PRINTED.replace("(Forbidden): ", "(Forbidden):\n").replace("NAME     STATUS", "NAME  STATUS"),
    "NAME STATUS READY AGE\n...\nError from server (Forbidden): spec.scal... is 6, ...\n",
    "...\ndigits-a-6949fd4b5c-5xh7m on 10.42.0.17\n...\nallows at most 4\n",
)
OTHER = (
    "",
    "...\n2/2\n...\n",
    PRINTED.replace("1/1", "0/1"),
    PRINTED.replace("digits-a-", "digits-b-"),
    PRINTED.replace("at most 4", "at most 5"),
    PRINTED.replace("NAME ", "NAME NAMESPACE "),
    PRINTED.partition("Error")[0],
    "...\nallows at most 4\n...\nNAME STATUS READY AGE\n...\n",
    "...\nNAME STATUS READY AGE\n",
)


@pytest.mark.parametrize("output", SHOWN)
def test_an_output_agrees_but_for_names_ages_times_and_addresses(output: str) -> None:
    assert difference(output, PRINTED) is None


@pytest.mark.parametrize("output", OTHER)
def test_an_output_that_differs_in_a_word_is_reported(output: str) -> None:
    assert difference(output, PRINTED) is not None


def test_figures_of_a_measurement_differ_and_its_words_do_not() -> None:
    output = "digits answered 1,042 requests/s: p99 44.8? ms; data [0.2023,...\n"
    real = "digits answered 990.5 requests/s: p99 53.9 ms; data [0.19,0.5]\n"
    assert difference(output, real, has_figures=True) is None
    assert difference(output, real) is not None
    assert difference(output, real.replace("answered", "rejected"), has_figures=True) is not None


def test_the_output_of_a_block_is_the_text_below_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\none\n```\n\nIt prints:\n\n```text\n1\n```\n\n```sh\ntwo\n```\n\n## More\n\n```text\n2\n```\n\n"
        "```sh\nthree\n```\n\n```yaml\na: b\n```\n\n```text\n3\n```\n"
    )
    assert [(step.name, step.output) for step in steps(page)] == [
        ("page.md: one", "1\n"),
        ("page.md: two", None),
        ("page.md: three", None),
    ]


def test_blocks_of_a_page_share_a_shell_and_have_outputs_apart() -> None:
    assert run_steps(["a=1\n", 'echo "$a"\necho 2 >&2\n', "true\n"], os.environ, limit_s=20) == ["", "1\n2\n", ""]
    with pytest.raises(AssertionError, match="false"):
        run_steps(["echo 1\n", "false\n", "echo 3\n"], os.environ, limit_s=20)


def test_the_row_counts_blocks_whose_last_run_agrees(tmp_path: Path) -> None:
    page, file = tmp_path / "page.md", tmp_path / "guides.json"
    page.write_text(
        "```console\n$ a \\\n  --b\nprinted\n$ cosign x\n$ c\n```\n\n```sh\none\n```\n\n```text\n1\n```\n\n```sh\ntwo\n```\n"
    )
    counts = documents.counts((page,), file)
    assert (counts["commands"], counts["commands without output"]) == (3, 1), "one is listed with the reason"
    assert (counts["commands that printed what their page shows"], counts["commands not shown to print it"]) == (0, 2)
    first, _, last = console_steps(page)
    of_commands = {step.script: outcome.compare(step, text) for step, text in ((first, "printed\n"), (last, ""))}
    outcome.record(page, of_commands, file=file)
    counts = documents.counts((page,), file)
    assert (counts["commands without output"], counts["commands not shown to print it"]) == (0, 0), (
        "nothing was printed"
    )
    assert (counts["blocks of shell"], counts["blocks not shown to print it"]) == (2, 2)
    outcomes = [outcome.compare(step, printed) for step, printed in zip(steps(page), ("1\n", "2\n"), strict=True)]
    assert [result.difference is None for result in outcomes] == [True, False]
    outcome.record(page, {step.script: result for step, result in zip(steps(page), outcomes, strict=True)}, file=file)
    assert documents.counts((page,), file)["blocks that printed what their page shows"] == 1
    page.write_text(page.read_text().replace("text\n1\n", "text\n4\n"))
    assert documents.counts((page,), file)["blocks that printed what their page shows"] == 0


def test_a_measured_block_is_compared_without_its_numbers() -> None:
    step = Step("batching.md", "halcyon bench\n", "142 requests/s\n")
    assert outcome.compare(step, "990 requests/s\n").difference is None
    assert outcome.compare(Step("zero.md", step.script, step.output), "990 requests/s\n").difference is not None


def test_the_output_of_a_command_is_below_it_or_after_its_block(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ a \\\n  --b\n1\n2\n$ c\n$ d\n```\n\nIt prints:\n\n```text\n3\n```\n")
    assert [(step.name, step.output) for step in console_steps(page)] == [
        ("page.md: a \\", "1\n2\n"),
        ("page.md: c", None),
        ("page.md: d", "3\n"),
    ]


def test_names_of_the_page_count_as_those_of_the_cluster() -> None:
    step = Step("zero.md", "halcyon status NAME", "resnet50 in team is ready\n")
    assert outcome.compare(step, "digits in pages is ready\n").difference is None
    assert outcome.compare(step, "digits in elsewhere is ready\n").difference is not None


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
    matches = {
        f"{page.name}:{number}": line
        for page in pages
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if wrong.search(line)
    }
    assert len(pages) >= 8
    assert matches == {}


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
    errors = [
        f"{finding.line}: {finding.message}" for finding in check(block, str(page)).findings if finding.level == "error"
    ]
    assert errors == []
