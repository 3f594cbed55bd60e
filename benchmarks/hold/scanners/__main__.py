"""python -m benchmarks.hold.scanners: run the scanners, print the findings without a reason, and record row 1.2."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.hold.scanners.findings import (
    Finding,
    checkov_findings,
    kube_score_findings,
    reasons,
    unused_reasons,
    without_reason,
)
from benchmarks.quality.rows import ROOT, Row, record
from e2e.cluster import binaries

_REGISTRY = "registry.example.com/halcyon"
_LIMIT_S = 600


def main() -> int:
    """Scan, record the row, and return 1 if a finding has no reason."""
    with tempfile.TemporaryDirectory() as folder:
        files = [_chart(Path(folder)), _model(Path(folder))]
        findings = [*_checkov(Path(folder)), *_kube_score(files)]
    accepted = reasons()
    missing, stale = without_reason(findings, accepted), unused_reasons(findings, accepted)
    for finding in missing:
        print(f"{finding.scanner} {finding.check} {finding.object}: {finding.text}")
    for reason in stale:
        print(f"this reason covers no finding: {reason.scanner} {reason.check} {reason.objects}")
    record("hold", [_row(findings, missing, len(stale))])
    return 1 if missing or stale else 0


def _row(findings: list[Finding], missing: list[Finding], stale: int) -> Row:
    return Row(
        id="1.2",
        what="findings of checkov and kube-score in the chart with its defaults and in the objects of README's model",
        value={
            "scanners": 2,
            **{
                f"findings of {name}": sum(finding.scanner == name for finding in findings)
                for name in ("checkov", "kube-score")
            },
            "without a reason": len(missing),
            "reasons without a finding": stale,
        },
        target="0 findings above informational without a reason (benchmarks/hold/scanners/reasons.tsv)",
        limits=[("without a reason", 0, "=="), ("reasons without a finding", 0, "==")],
        command="python -m benchmarks.hold.scanners",
        why="kube-linter and polaris are not among the Go modules that can be had here; trivy's checks come from a registry of images",
        n=len(findings),
        raw=[finding.__dict__ for finding in findings],
    )


def _chart(folder: Path) -> Path:
    """Render the chart with its default values but for the registry, which has none."""
    helm = binaries.ensure() / "helm"
    command = [helm, "template", "halcyon", ROOT / "charts" / "halcyon", "-n", "halcyon-system"]
    file = folder / "chart.yaml"
    file.write_text(_run([*map(str, command), "--set", f"images.registry={_REGISTRY}"]))
    return file


def _model(folder: Path) -> Path:
    """Render the objects of README's model."""
    match = re.search(
        r"^apiVersion: serving.*?(?=^```)", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL
    )
    assert match is not None, "README has a ModelDeployment"
    source = folder / "source.txt"
    source.write_text(match[0])
    file = folder / "model.yaml"
    command = [sys.executable, "-m", "halcyon.main", "plan", "-f", str(source), "--offline", "-o", "yaml"]
    file.write_text(_run(command))
    source.unlink()
    return file


def _checkov(folder: Path) -> list[Finding]:
    command = [
        sys.executable, "-m", "checkov.main", "-d", str(folder), "--framework", "kubernetes", "-o", "json",
        "--compact", "--quiet", "--skip-download",
    ]  # fmt: skip
    return checkov_findings(_run(command, statuses=(0, 1), PYTHONPATH=str(_checkov_site())))


def _kube_score(files: list[Path]) -> list[Finding]:
    program = binaries.extra_program("kube-score")
    return kube_score_findings(_run([str(program), "score", "-o", "json", *map(str, files)], statuses=(0, 1)))


def _checkov_site() -> Path:
    """Return the folder with checkov and its packages, which are installed outside the tree if they are missing."""
    return Path(
        _run([str(ROOT / "scripts" / "pinned-site"), "checkov", "benchmarks/hold/scanners/requirements.lock"]).strip()
    )


def _run(command: list[str], *, statuses: tuple[int, ...] = (0,), **environment: str) -> str:
    """Run a program and return its output.

    Raises:
        RuntimeError: it ended with another status; the message has the end of its errors.
    """
    process = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
        stdin=subprocess.DEVNULL,
    )
    if process.returncode not in statuses:
        raise RuntimeError(
            f"{' '.join(command)[:200]} ended with status {process.returncode}: {process.stderr[-1000:]}"
        )
    return process.stdout


if __name__ == "__main__":
    sys.exit(main())
