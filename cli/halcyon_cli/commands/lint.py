"""`halcyon lint FILE...`: finds errors in the ModelDeployments and BatchInferences of files before they are applied. It works offline.

Out of scope: the rules (`halcyon.api`) and how violations get their line numbers (`lint.checks`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from halcyon_cli import input_files
from halcyon_cli.arguments.options import FILE, Output, emit, output_options
from halcyon_cli.errors import InputError

if TYPE_CHECKING:
    from halcyon_cli.lint.checks import FileResult, Finding

MAX_BYTES = 16 * 2**20
_OTHERS = re.compile(
    r"""^[ {]*["']?apiVersion["']?: *["']?(?:serving\.kserve\.io|machinelearning\.seldon\.io|mlops\.seldon\.io)/""",
    re.MULTILINE,
)
_MIGRATE = "; docs/guides/migrating.md maps the fields of KServe and Seldon Core to it"
_SUFFIXES = {".yaml", ".yml", ".json"}
_EPILOG = """\
\b
examples:
  halcyon lint -f model.yaml
  halcyon lint models/*.yaml extra.yaml --strict
  helm template charts/mine | halcyon lint -f -
  halcyon lint -f manifests/ -o sarif > lint.sarif

A file may hold several documents; other kinds are skipped, but the config.pbtxt in a ConfigMap is checked with the
ModelDeployment that uses it. kubectl apply --dry-run=server and the condition Accepted check what only a
cluster can: whether a ConfigMap, a volume, a class or a name exists.

Each finding ends with the id of its rule. -o sarif is for code scanning, and -o github writes annotations of a GitHub workflow.

\b
exit status:
  0  no errors
  1  errors; with --strict also warnings
  2  a file can't be read, or no file contains an object to validate
"""


@click.command("lint", epilog=_EPILOG)
@click.option(
    "-f",
    "--file",
    "files",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="YAML or JSON file, a folder of them, or - for stdin. Repeatable; the same as FILES.",
)
@click.argument("more", type=FILE, nargs=-1, metavar="[FILES]...")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@output_options("table", "json", "yaml", "sarif", "github")
def main(files: Sequence[Path], more: Sequence[Path], strict: bool, output: Output) -> int:  # fmt: skip
    """Validate ModelDeployments and BatchInferences in files against the rules of the API server and the operator, with line numbers."""
    from halcyon_cli.lint.checks import check  # noqa: PLC0415  # slow to import
    from halcyon_cli.lint.model_configs import config_maps  # noqa: PLC0415
    from halcyon_cli.lint.sarif import github, sarif  # noqa: PLC0415

    files = (*files, *more)
    if not files:
        raise click.UsageError("Missing a file or folder, for example: halcyon lint -f model.yaml")
    texts = {file: _read(file) for path in files for file in _files(path)}
    maps = config_maps(texts.values())
    results = [check(text, input_files.name(file), maps) for file, text in texts.items()]
    findings = [finding for result in results for finding in result.findings]
    if not findings and not any(result.models or result.batches for result in results):
        raise InputError(_no_object(files, texts.values()))
    if output.form == "sarif":
        emit(json.dumps(sarif(findings, version("halcyon-cli")), indent=2))
    elif output.form == "github":
        emit(github(findings))
    elif output.is_data:
        output.data([finding.to_dict() for finding in findings])
    else:
        for finding in findings:
            emit(_line(finding, output))
        emit(_summary(results))
    failing = {"error", "warning"} if strict else {"error"}
    return 1 if any(finding.level in failing for finding in findings) else 0


def _no_object(files: Sequence[Path], texts: Iterable[str]) -> str:
    """Return the message for files without an object to check, with a hint if they have objects of other systems."""
    hint = _MIGRATE if any(map(_OTHERS.search, texts)) else ""
    return (
        f"{', '.join(map(input_files.name, files))}: no ModelDeployment or BatchInference in it; a document needs one of these kinds, for "
        f"example kind: ModelDeployment{hint}"
    )


def _line(finding: Finding, output: Output) -> str:
    prefix = f"{finding.name}: " if finding.name else ""
    place = _styled(f"{finding.file}:{finding.line}", "1", output)
    return f"{place}: {_styled_level(finding.level, output)}: {prefix}{finding.message} [{finding.rule}]"


def _summary(results: Sequence[FileResult]) -> str:
    """Return a sentence with the numbers of objects, files, errors and warnings."""
    counts = {
        "ModelDeployment": sum(result.models for result in results),
        "BatchInference": sum(result.batches for result in results),
    }
    # A file with invalid YAML may have no object at all.
    objects = [_plural(number, kind) for kind, number in counts.items() if number] or ["0 ModelDeployments"]
    levels = Counter(finding.level for result in results for finding in result.findings)
    return (
        f"{' and '.join(objects)} in {_plural(len(results), 'file')}: {_plural(levels['error'], 'error')}, "
        f"{_plural(levels['warning'], 'warning')}"
    )


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    files = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not files:
        raise InputError(f"{path}: no file in it ends in .yaml, .yml or .json")
    yield from files


def _read(file: Path) -> str:
    return input_files.text(file, max_bytes=MAX_BYTES, hint=", more than any object may have")


def _styled_level(level: str, output: Output) -> str:
    return _styled(level, "31" if level == "error" else "33", output)


def _styled(part: str, code: str, output: Output) -> str:
    return f"\x1b[{code}m{part}\x1b[0m" if output.color else part


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
