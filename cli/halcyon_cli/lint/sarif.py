"""Findings of `halcyon lint` in the formats of code scanners: SARIF 2.1.0, and workflow commands of GitHub. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from halcyon_cli.lint.checks import Finding
from halcyon_cli.lint.rules import RULES

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_HELP: Final = "https://halcyon.dev/docs/reference/cli.md#lint"


def sarif(findings: Sequence[Finding], version: str) -> dict[str, Any]:
    """Return the findings as a SARIF log with one run. `version` is the version of Halcyon."""
    ids = list(RULES)
    rules = [
        {
            "id": name,
            "shortDescription": {"text": rule.text},
            "helpUri": _HELP,
            "defaultConfiguration": {"level": rule.level},
        }
        for name, rule in RULES.items()
    ]
    results = [
        {
            "ruleId": finding.rule,
            "ruleIndex": ids.index(finding.rule),
            "level": finding.level,
            "message": {"text": f"{finding.name}: {finding.message}" if finding.name else finding.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": quote(finding.file.replace("\\", "/"))},
                        "region": {"startLine": finding.line},
                    }
                }
            ],
        }
        for finding in findings
    ]
    driver = {"name": "halcyon lint", "version": version, "informationUri": _HELP, "rules": rules}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def github(findings: Sequence[Finding]) -> str:
    """Return the findings as workflow commands, which GitHub shows next to the lines of a pull request."""
    return "\n".join(
        f"::{finding.level} file={_escaped(finding.file, ',:')},line={finding.line},title={finding.rule}::"
        + _escaped(f"{finding.name}: {finding.message}" if finding.name else finding.message)
        for finding in findings
    )


def _escaped(text: str, characters: str = "") -> str:
    for char in f"%\r\n{characters}":
        text = text.replace(char, f"%{ord(char):02X}")
    return text
