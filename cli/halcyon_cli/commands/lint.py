"""`halcyon lint -f FILE...`: what is wrong with the ModelDeployments in files, before anything is applied. Off line.

Not here: the rules (`halcyon.api`), and where they are broken (`checking`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from halcyon_cli import input_files as given_files
from halcyon_cli.arguments.options import FILE, Output, emit, formatted
from halcyon_cli.errors import InputError

MAX_BYTES = 16 * 2**20
_SUFFIXES = {".yaml", ".yml", ".json"}
_EPILOG = """\
\b
examples:
  halcyon lint -f model.yaml
  halcyon lint -f manifests/ -f extra.yaml --strict
  helm template charts/mine | halcyon lint -f -

A file may hold several documents; those of other kinds are passed over. What only a cluster knows (whether a ConfigMap, a volume, a class or
a name is there) is told by kubectl apply --dry-run=server, and by the condition Accepted.

\b
exit status:
  0  nothing is wrong
  1  something is; with --strict also where a field has no effect
  2  a file can't be read, or none of them holds a ModelDeployment
"""


@click.command("lint", epilog=_EPILOG)
@click.option(
    "-f",
    "--file",
    "files",
    type=FILE,
    required=True,
    multiple=True,
    metavar="FILE",
    help="YAML or JSON, a folder of such, or - for stdin; may be given more than once.",
)
@click.option("--strict", is_flag=True, help="Take warnings for errors.")
@formatted("table", "json", "yaml")
def main(files: Sequence[Path], strict: bool, output: Output) -> int:  # fmt: skip
    """Check ModelDeployments in files by the rules that the API server and the operator hold, and name the line."""
    from halcyon_cli.lint.checks import check  # noqa: PLC0415  # the models take a while to load

    checked = [check(_text(file), given_files.name(file)) for given in files for file in _files(given)]
    models, findings = sum(one.models for one in checked), [f for one in checked for f in one.findings]
    if not models and not findings:
        raise InputError(
            f"{', '.join(map(given_files.name, files))}: no ModelDeployment in it; one begins with kind: ModelDeployment"
        )
    levels = Counter(finding.level for finding in findings)
    if output.is_data:
        output.data([finding.to_dict() for finding in findings])
    else:
        for one in findings:
            who = f"{one.name}: " if one.name else ""
            emit(f"{_painted(f'{one.file}:{one.line}', '1', output)}: {_level(one.level, output)}: {who}{one.message}")
        emit(
            f"{_counted(models, 'ModelDeployment')} in {_counted(len(checked), 'file')}: {_counted(levels['error'], 'error')}, {_counted(levels['warning'], 'warning')}"
        )
    return 1 if levels["error"] or (strict and levels["warning"]) else 0


def _files(given: Path) -> Iterator[Path]:
    if not given.is_dir():
        yield given
        return
    found = sorted(file for file in given.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not found:
        raise InputError(f"{given}: there is no file in it whose name ends in .yaml, .yml or .json")
    yield from found


def _text(file: Path) -> str:
    return given_files.text(file, most_bytes=MAX_BYTES, hint=", which no object may be")


def _level(level: str, output: Output) -> str:
    return _painted(level, "31" if level == "error" else "33", output)


def _painted(part: str, code: str, output: Output) -> str:
    return f"\x1b[{code}m{part}\x1b[0m" if output.color else part


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
