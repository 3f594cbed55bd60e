"""The names and versions that pages use exist: fields, conditions, metrics, alerts, options, Kubernetes versions.

Sources are the generated files (CRD, docs/reference, alerts), which tests of their own hold up to date.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, get_args

import click
import pytest

from e2e.blocks import blocks, invocations
from halcyon.api.batch_inference import BatchConditionType, BatchReason
from halcyon.api.conditions import Reason, Type
from halcyon.api.spec.parse import parse
from halcyon.scaling.hpa.recommendation import LimitKind
from halcyon.scaling.planner.outputs import LimitName
from halcyon.scaling.policy.decision import ReplicaLimitName
from halcyon_cli.commands.app import group
from tests.unit import test_documentation as documentation
from tests.unit.test_documentation import ROOT, shown
from tests.yaml_text import all_loaded, loaded

REFERENCE = ROOT / "docs" / "reference"
_WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [
    page
    for page in _WRITTEN
    if page.parent.name not in {"reference", "decisions", "quality"} and not page.read_text().startswith("<!-- Gen")
]
"""Written by hand."""
EXAMPLES = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
NOTES = sorted((ROOT / "charts").glob("*/templates/NOTES.txt"))
READMES = sorted((ROOT / "charts").glob("*/README.md"))
SITE_POLICY = {"traffic.serviceTypes", "traffic.gateways", "traffic.hostnames"}
"""Below `sitePolicy` of the chart, and so not in the CRD."""
APART = {"OOMKilled", "ScalingDisabled", "Failed"}
"""Listed beside reasons: words of Kubernetes' own objects, and a phase of a rollout."""
OTHERS = {"migrating.md": {"model.storageUri", "model.runtime", "spec.canary"}}
"""Fields of other systems, by page."""
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:spec\.|status\.)?[a-z]\w*(?:\[\])?(?:\.[a-z]\w*(?:\[\])?)+")
_FILES = {"py", "onnx", "plan", "graphdef", "md", "pbtxt", "yaml", "json"}


@cache
def text_of(page: Path) -> str:
    return page.read_text()


def on(pages: Iterable[Path], unknown: Callable[[Path], Collection[str]]) -> dict[str, list[str]]:
    """Return what is unknown on each page, for those with any: one test for all pages, since a thousand small ones take seconds."""
    return {shown(page): sorted(names) for page in pages if (names := unknown(page))}


@cache
def schema(plural: str) -> dict[str, Any]:
    crd = loaded((ROOT / "crds" / f"{plural}.serving.halcyon.dev.yaml").read_text())
    properties: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return properties


def has(path: str) -> bool:
    """Return whether one of the CRDs has the field."""
    return any(_has(path, schema(plural)) for plural in ("modeldeployments", "batchinferences"))


def _has(path: str, fields: dict[str, Any]) -> bool:
    level: dict[str, Any] = {"properties": fields}
    for name in path.replace("[]", "").split("."):
        level = level.get("items", level)
        if "additionalProperties" in level:
            return True
        if name not in level.get("properties", {}):
            return False
        level = level["properties"][name]
    return True


def unknown_fields(page: Path) -> set[str]:
    unknown = set()
    for code in _CODE.findall(text_of(page)):
        path = code.partition(":")[0].partition("=")[0]
        if not _PATH.fullmatch(path) or path.rpartition(".")[2] in _FILES:
            continue
        first = path.partition(".")[0]
        if first in {"spec", "status"}:
            known = has(path)
        elif first in {"model", "runtime", "batching", "scaling", "traffic", "rollout"}:  # as pages shorten them
            known = has(f"spec.{path}") or path in SITE_POLICY
        else:
            continue
        if not known:
            unknown.add(path)
    return unknown - OTHERS.get(page.name, set())


def test_fields_exist() -> None:
    assert on(PAGES, unknown_fields) == {}


def unknown_conditions(page: Path) -> set[str]:
    text = text_of(page)
    used = set(re.findall(r"\b[Cc]onditions? `([A-Z]\w+)`", text)) | set(re.findall(r"\breasons? `([A-Z]\w+)`", text))
    used |= set(re.findall(r"\b([A-Z]\w+)=(?:True|False|Unknown)\b", text)) - {"Available"}
    for item in re.findall(r"^- ((?:`[A-Z]\w+`(?:, )?)+):", text, re.MULTILINE):  # as troubleshooting lists them
        used |= {word for word in re.findall(r"\w+", item) if not word.isupper()} - APART
    return used - {*map(str, Type), *map(str, Reason), *map(str, BatchConditionType), *map(str, BatchReason)}


def test_conditions_and_reasons_exist() -> None:
    assert on(PAGES, unknown_conditions) == {}


@cache
def source() -> str:
    """Return the text of the programs and of the charts, with the parts of a string joined."""
    files = [path for name in ("operator", "cli", "charts") for path in (ROOT / name).rglob("*") if path.is_file()]
    text = " ".join(
        path.read_text() for path in files if path.suffix in {".py", ".lua", ".tpl", ".txt", ".yaml", ".js"}
    )
    return re.sub(r"\s+", " ", re.sub(r'"\s*f?"', "", text))


OUTSIDE = re.compile(
    r"nodes are available|Insufficient|failed to find the requested model|^secret|^needs \d|terminated: OOMKilled|^folder X"
)
"""Messages of Kubernetes and Triton, and those that are mostly values."""


def unknown_messages(page: Path) -> list[str]:
    """What is quoted, and is no command, and has four words or more."""
    unknown = []
    text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    for code in _CODE.findall(text):
        command = re.match(r"(kubectl|halcyon|helm|make|python|pip|curl|grype|docker|perf|-)", code)
        if page.parent.name == "reference" or len(code.split()) < 4 or command or OUTSIDE.search(code):
            continue
        if re.search(r"[{}\[\]=]|: [A-Za-z0-9\"]+$", code):  # YAML, PromQL
            continue
        parts = [part.strip(" .,:") for part in re.split(r"\.\.\.|[A-Z]{2,}(?:/[A-Z]+)?|\d+|\bM\b", code)]
        unknown += [code for part in parts if len(part) >= 10 and part not in source()]
    return unknown


def test_messages_exist() -> None:
    pages = [ROOT / "docs" / "troubleshooting.md", *(ROOT / "docs").glob("[cgr]*/*.md")]
    assert on(pages, unknown_messages) == {}


@cache
def metrics() -> frozenset[str]:
    pages = (REFERENCE / "metrics.md", REFERENCE / "agent-metrics.md")
    return frozenset(name for page in pages for name in re.findall(r"\bhalcyon_\w+", text_of(page)))


def unknown_metrics(page: Path) -> set[str]:
    used = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\bhalcyon_\w+", text_of(page))}
    used -= {"halcyon_batch", "halcyon_cli", "halcyon_measure", "halcyon_simulator", "halcyon_tune"}  # packages
    unknown = used - metrics()
    families = {name for name in unknown if name.endswith("_") and any(metric.startswith(name) for metric in metrics())}
    return unknown - families


def test_metrics_exist() -> None:
    assert on(PAGES, unknown_metrics) == {}


@cache
def alerts() -> frozenset[str]:
    text = (ROOT / "charts" / "halcyon" / "files" / "monitoring" / "alerts.yaml").read_text()
    return frozenset(re.findall(r"alert: (\w+)", text))


def test_alerts_exist() -> None:
    assert on(PAGES, lambda page: set(re.findall(r"\bHalcyon[A-Z]\w+", text_of(page))) - alerts()) == {}


_SEPARATE = {"operator", "agent", "fetch"}
"""Commands of containers."""


@cache
def program(module: str) -> str:
    """Return the text of a module that pages run, with that of the modules in its folder."""
    path = ROOT / ("simulator" if module.startswith("halcyon_") else "") / module.replace(".", "/")
    return "".join(file.read_text() for file in (path if path.is_dir() else path.parent).glob("*.py"))


def unknown_options(name: str, arguments: list[str]) -> list[str]:
    """Return what click or the module's argparse doesn't know."""
    used = [word.partition("=")[0] for word in arguments if re.match("--?[a-z]", word) and word != "--help"]
    if name == "simulate" or "." in name or (ROOT / name).is_dir():
        text = program("halcyon_simulator.command" if name == "simulate" else name)
        return [option for option in used if f'"{option}"' not in text]
    command = group.get_command(click.Context(group), name)
    if command is None:
        return [name]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return [option for option in used if option not in known]


def unknown_commands(page: Path) -> list[str]:
    return [
        f"{name}: {option}"
        for name, arguments in invocations(text_of(page))
        if name not in _SEPARATE
        for option in unknown_options(name, arguments)
    ]


def test_commands_of_halcyon_and_their_options_exist() -> None:
    pages = [*_WRITTEN, *NOTES, *READMES, ROOT / "charts" / "halcyon" / "files" / "monitoring" / "alerts.yaml"]
    assert on(pages, unknown_commands) == {}


def test_options_of_commands_in_pipes_and_substitutions_are_compared(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nhalcyon get digits --wide | cat\nx=$(halcyon infer digits --rows 2)\ntrue && halcyon nothing\n"
        "halcyon plan -f a.yaml \\\n  --observation b.json\n```\n\n"
        "Run `python -m e2e.load A:1 m --callers 2`, `halcyon simulate --slo 5` or `halcyon top --sort cost`.\n"
    )
    assert unknown_commands(page) == [
        "get: --wide", "infer: --rows", "nothing: nothing", "plan: --observation", "e2e.load: --callers", "simulate: --slo",
    ]  # fmt: skip


def test_the_range_of_kubernetes_is_the_same_everywhere() -> None:
    oldest, newest = re.findall(r"VERSIONS\),([\d.]+) ([\d.]+)\)", (ROOT / "Makefile").read_text())[0]
    charts = [ROOT / "charts" / name for name in ("halcyon", "halcyon-crds")]
    for chart in charts:
        assert loaded((chart / "Chart.yaml").read_text())["kubeVersion"] == f">={oldest}.0-0"
    ranges = {
        (shown(page), versions)
        for page in [*PAGES, *(chart / "README.md" for chart in charts)]
        for versions in re.findall(r"Kubernetes (1\.\d+) (?:to|and) (1\.\d+)", text_of(page))
    }
    assert {versions for _, versions in ranges} == {(oldest, newest)}, ranges
    install = (ROOT / "docs" / "guides" / "install.md").read_text()
    table = install.partition("## Supported versions")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ((?:1\.\d+(?:, )?)+)", table, re.MULTILINE)
    minors = sorted(int(version.removeprefix("1.")) for row in rows for version in row.split(", "))
    first, last = (int(version.removeprefix("1.")) for version in (oldest, newest))
    assert minors == [*range(first, last + 2)], "the one after the newest is named, as not tested"


def installations_without_images(page: Path) -> list[str]:
    installations = re.findall(r"helm install halcyon charts/halcyon .*", text_of(page).replace("\\\n", " "))
    return [line for line in installations if "--values" not in line and "images.registry" not in line]


def test_an_installation_names_the_images() -> None:
    assert on([*PAGES, *NOTES, *READMES], installations_without_images) == {}


def test_a_package_that_is_not_published_is_installed_from_a_clone() -> None:
    assert on(PAGES, lambda page: re.findall(r"install 'halcyon-operator.*", text_of(page))) == {}


def resources() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each complete ModelDeployment of the pages and the examples, with where it is."""
    for page in PAGES:
        for block in blocks(page, "yaml"):
            if "kind: ModelDeployment" in block:
                yield shown(page), next(obj for obj in all_loaded(block) if obj["kind"] == "ModelDeployment")
    for file in EXAMPLES:
        for document in all_loaded(file.read_text()):
            if document and document["kind"] == "ModelDeployment":
                yield shown(file), document


RESOURCES = list(resources())


def test_the_first_examples_run_without_a_gpu() -> None:
    """A cluster without GPUs is where most people begin."""
    first = [resource for place, resource in RESOURCES if place in {"README.md", "manifests/examples/minimal.yaml"}]
    assert len(first) == 2
    assert [parse("m", resource["spec"]).runtime.gpus for resource in first] == [0, 0]
    assert "manifests/examples/minimal.yaml" in (ROOT / "docs" / "quickstart.md").read_text()


def test_examples_that_scale_to_zero_let_a_request_wait_for_a_start() -> None:
    waiting = {
        place: "queueTimeout" in resource["spec"].get("traffic", {})
        for place, resource in RESOURCES
        if resource["spec"].get("scaling", {}).get("minReplicas") == 0
    }
    assert "manifests/examples/planner.yaml" in waiting
    assert waiting == dict.fromkeys(waiting, True)


def test_permissions_of_the_operator_are_in_the_readme_of_the_chart() -> None:
    role = (ROOT / "charts" / "halcyon" / "templates" / "clusterrole.yaml").read_text()
    short = {"horizontalpodautoscalers": "hpas", "poddisruptionbudgets": "pdbs", "persistentvolumeclaims": "pvcs"}
    listed = ",".join(re.findall(r"resources: \[(.*)\]", role)).replace("pods/eviction", "evictions")
    resources = {name.strip().partition("/")[0] for name in listed.split(",")}
    (_, table) = text_of(ROOT / "charts" / "halcyon" / "README.md").split("## Permissions of the operator")
    named = set(re.findall(r"\w+", table.lower())) | {"apiservices"}  # by its name
    assert len(resources) > 20
    assert {short.get(resource, resource) for resource in resources} - named == set()


def test_limits_of_decisions_are_documented() -> None:
    limits = {*get_args(LimitName), *get_args(LimitKind), *get_args(ReplicaLimitName)}
    (metric,) = [line for line in text_of(REFERENCE / "metrics.md").splitlines() if "`halcyon_model_limited`" in line]
    cells = re.findall(r"^\| (`\w.*?) \|", text_of(ROOT / "docs" / "concepts" / "scaling.md"), re.MULTILINE)
    assert limits - set(re.findall(r"\w+", metric)) == set()
    assert limits - set(re.findall(r"\w+", " ".join(cells))) == set()


def absent_files(page: Path) -> set[str]:
    files = re.findall(r"`((?:tests|benchmarks|e2e|operator|manifests|generators)/[\w./-]+\.\w+)", text_of(page))
    return {file for file in files if not (ROOT / file).exists()}


def absent_test_paths(page: Path) -> list[str]:
    """Return the paths below tests/ that a table of the page has without code marks."""
    cells = " ".join(line for line in text_of(page).splitlines() if line.startswith("|"))
    paths = re.findall(r"(?<![\w/`])tests/[\w./*-]+\w", cells)
    return [path for path in paths if not any(ROOT.glob(path))]


def test_folders_of_tests_in_contributing_exist() -> None:
    assert absent_test_paths(ROOT / "CONTRIBUTING.md") == []


def test_files_of_the_repository_exist() -> None:
    assert on([*PAGES, *REFERENCE.glob("*.md")], absent_files) == {}


def test_words_that_yaml_reads_as_booleans_are_quoted() -> None:
    assert on([*PAGES, *EXAMPLES], lambda page: re.findall(r"\banalysis: (?:On|Off)\b", text_of(page))) == {}


def test_decisions_are_in_their_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    assert [page.name for page in sorted(folder.glob("0*.md")) if f"]({page.name})" not in index] == []


def links_by_another_number(page: Path) -> list[str]:
    links = re.findall(r"\[(\d{4})\]\([^)\s]*?(\d{4})-[\w-]+\.md\)", text_of(page))
    return [f"[{link[0]}] leads to {link[1]}" for link in links if link[0] != link[1]]


def test_a_decision_is_linked_by_its_number() -> None:
    assert on(_WRITTEN, links_by_another_number) == {}


def printed() -> Iterator[tuple[Path, str, str, bool]]:
    """Yield each command that needs no cluster, the output after its block, and whether that is its output alone."""
    shell = re.compile(
        r"^```sh\n((?:(?!```).)*?)^```\n\n(?:[^`\n][^\n]*\n\n)?```text\n(.*?)^```$", re.DOTALL | re.MULTILINE
    )
    for page in PAGES:
        for script, output in shell.findall(text_of(page)):
            lines = script.splitlines()
            for line in lines:
                if re.match(r"halcyon (lint |plan .*(--offline|--observations))", line):
                    yield page, line, output, len(lines) == 1


@pytest.mark.parametrize(
    ("command", "output", "alone"),
    [pytest.param(*case, id=f"{page.stem}: {case[0]}") for page, *case in printed()],
)
def test_the_output_of_a_command_is_what_its_page_shows(
    command: str, output: str, alone: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line `...` is for lines that are left out."""
    (program,) = entry_points(group="console_scripts", name="halcyon")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    try:
        status = program.load()()
    except SystemExit as end:
        status = end.code
    assert not status
    real = capsys.readouterr().out.splitlines()
    shown_lines = [line for line in output.splitlines() if line != "..."]
    assert [line for line in shown_lines if line in real] == shown_lines if alone else set(shown_lines) & set(real), (
        "\n".join(real)
    )


def test_links_of_the_changelog_lead_somewhere() -> None:
    documentation.test_every_link_leads_to_a_file_and_a_heading_that_are_there(ROOT / "CHANGELOG.md")
