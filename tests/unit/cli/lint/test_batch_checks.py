"""`halcyon lint` of a BatchInference: types as strict as the API server's, all errors at once, and hints."""

from __future__ import annotations

import pytest

from halcyon_cli.lint.checks import check

GOOD = """\
apiVersion: serving.halcyon.dev/v1alpha1
kind: BatchInference
metadata: {name: night}
spec:
  modelDeployment: digits
  input: {uri: s3://sets/rows.npz}
  output: {uri: s3://sets/out}
"""


@pytest.mark.parametrize(
    "more",
    [
        "",
        "  deadline: 2026-12-01T06:00:00Z\n",
        "  deadline: 2026-12-01t06:00:00.5z\n",
        "  deadline: 2026-12-01T06:00:00,5Z\n",
        "  deadline: 2026-12-01T08:00:00+02:00\n",
        "  suspend: yes\n  atZero: Wake\n  workers: 2.0\n  cpu: '2'\n",
    ],
)
def test_a_valid_batch_has_no_findings(more: str) -> None:
    assert check(GOOD + more, "f").findings == ()


@pytest.mark.parametrize(
    ("text", "line", "rule", "message"),
    [
        (GOOD + "  gentel: true\n", 8, "unknown-field", "spec.gentel is not a field; did you mean gentle?"),
        (GOOD.replace("input: {", "input: {sizeLmit: 3, "), 6, "unknown-field", "spec.input.sizeLmit is not a field; did you mean sizeLimit?"),
        (GOOD + "  hooks: {prepare: 'x.py:f'}\n", 8, "missing-field", "spec.hooks.configMap is missing"),
        (GOOD + "  hooks: {configMap: h}\n", 8, "conflicting-fields", "spec.hooks has neither prepare nor finish"),
        (GOOD + "  workers: '2'\n", 8, "invalid-value", 'spec.workers is "2": must be a whole number from 1 to 64, without quotes'),
        (GOOD + "  cpu: 2.5\n", 8, "invalid-value", "spec.cpu is 2.5: must be a quantity between 10m and 256, and in quotes"),
            (GOOD + "  gentle: 'yes'\n", 8, "invalid-value", 'spec.gentle is "yes": must be true or false, without quotes'),
            (GOOD.replace("input: {", "input: {format: csv, "), 6, "invalid-value", "must be Npz, Jsonl, Parquet or Folder"),
        (GOOD + "  cpu: 1m\n", 8, "invalid-value", 'spec.cpu is "1m": must be between 10m and 256'),
        (GOOD + "  deadline: tomorrow\n", 8, "invalid-value", "spec.deadline is 'tomorrow'; it must be a time"),
        (GOOD + "  deadline: 2026-13-01T06:00:00Z\n", 8, "invalid-value", "it must be a time, for example 2026-12-01T"),
        (GOOD.replace("night", "Night"), 3, "name", "metadata.name is 'Night' (5 characters); it must match"),
    ],
)  # fmt: skip
def test_a_wrong_field_of_a_batch_is_found_with_its_line(text: str, line: int, rule: str, message: str) -> None:
    (finding,) = check(text, "f").findings
    assert (finding.line, finding.rule) == (line, rule)
    assert finding.message.startswith(message) or message in finding.message


@pytest.mark.parametrize(
    "deadline",
    [
        "2026-12-01 06:00:00Z", "2026-12-01T06:00Z", "20261201T060000Z", "2026-W49-2T06:00:00Z",
        "2026-12-01T06:00:00+0100", "2026-12-01T06:00:00+99:99", "2026-12-01X06:00:00Z", "2026-12-01T06:00:00",
    ],
)  # fmt: skip
def test_a_deadline_that_the_api_server_rejects_is_found(deadline: str) -> None:
    (finding,) = check(f"{GOOD}  deadline: '{deadline}'\n", "f").findings
    assert finding.message == f"spec.deadline is '{deadline}'; it must be a time, for example 2026-12-01T06:00:00Z"


def test_all_errors_of_a_batch_are_found_at_once() -> None:
    findings = check(GOOD + "  xyz: 1\n  workers: 0\n", "f").findings
    assert [(finding.line, finding.rule) for finding in findings] == [(8, "unknown-field"), (9, "invalid-value")]
    assert "the fields are modelDeployment, input, output" in findings[0].message


def test_quantities_of_a_batch_may_be_whole_numbers() -> None:
    assert check(GOOD + "  cpu: 2\n  memory: 2147483648\n", "f").findings == ()
