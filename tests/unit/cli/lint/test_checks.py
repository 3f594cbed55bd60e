"""`halcyon lint`: what is found, on which line, and how the command ends."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from halcyon.main import main
from halcyon_cli.lint.checks import check
from halcyon_cli.lint.rules import RULES
from halcyon_cli.lint.sarif import github, sarif
from tests.unit.api.spec_cases import FIELDS, document
from tests.unit.api.spec_cases import GOOD as ACCEPTED
from tests.unit.api.spec_cases import RULES as BROKEN_RULES
from tests.unit.cli.explain.test_report import GOLDEN, compared

GOOD = """\
apiVersion: serving.halcyon.dev/v1alpha1
kind: ModelDeployment
metadata:
  name: digits
spec:
  model:
    source:
      persistentVolumeClaim: {claimName: models}
"""
BATCH = """\
apiVersion: serving.halcyon.dev/v1alpha1
kind: BatchInference
metadata: {name: night}
spec:
  modelDeployment: digits
  input: {uri: s3://sets/rows.npz}
  output: {uri: s3://sets/out}
"""


def lint(text: str) -> list[tuple[int, str, str]]:
    """(line, level, message)."""
    return [(finding.line, finding.level, finding.message) for finding in check(text, "f").findings]


def test_a_valid_manifest_has_no_findings() -> None:
    assert check(GOOD, "f").models == 1
    assert lint(GOOD) == []


def test_metadata_of_any_valid_form_has_no_findings() -> None:
    more = "\n  namespace: team\n  labels: {a: 'true', b: , c: yes-no}\n  annotations:"
    assert lint(GOOD.replace("  name: digits", f"  name: digits{more}")) == []


def test_unquoted_values_have_the_types_that_kubectl_gives_them() -> None:
    meta = "\n  annotations: {built: 2026-01-02, at: 8:30, time: 2026-01-02T03:04:05Z, sign: =}"
    assert lint(GOOD.replace("  name: digits", f"  name: digits{meta}") + "  replicas: 2.0\n") == []
    assert lint(GOOD + "  scaling: {minReplicas: 0o2, maxReplicas: 1e1}\n") == []


def test_objects_that_are_merged_into_others_are_checked_as_their_fields() -> None:
    labels = "\n  labels: &l {team: vision, tier: a}\n  annotations: {<<: *l, tier: "
    assert lint(GOOD.replace("  name: digits", "  name: digits" + labels + "b}")) == []
    wrong = labels.replace("vision", "5")
    assert [line for line, _, _ in lint(GOOD.replace("  name: digits", "  name: digits" + wrong + "b}"))] == [5, 5]


def test_items_of_a_list_of_model_deployments_are_checked() -> None:
    item = yaml.safe_load(GOOD) | {"speck": {}}
    text = json.dumps({"apiVersion": "v1", "kind": "ModelDeploymentList", "items": [item]})
    assert [message.split(";")[0] for _, _, message in lint(text)] == ["speck is not a field"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (GOOD + "  replicas: '2'\n", 9, 'spec.replicas is "2": must be a whole number from 0 to 1000, without quotes'),
        (GOOD + "  replicas: 2\n  trafic: {}\n", 10, "spec.trafic is not a field; did you mean traffic?"),
        (GOOD + "  rollout:\n    xyz: 1\n", 10, "spec.rollout.xyz is not a field; the fields are strategy, surgeTimeout, onFailure, canary"),
        (GOOD + "  runtime:\n    env:\n      - {name: A, valu: b}\n", 11, "spec.runtime.env[0].valu is not a field; did you mean value?"),
        (GOOD + "  scaling:\n    minReplicas: 9\n    maxReplicas: 4\n", 10, "spec.scaling.minReplicas is 9 and must not be above"),
        (GOOD + "  runtime:\n    env:\n      - {name: A, value: b}\n      - {name: 1bad, value: b}\n", 12, 'spec.runtime.env[1].name is "1bad"'),
        (GOOD + "  batching:\n    maxQueueDelay: 3 ms\n", 10, "for example 500us"),
        (GOOD + "  batching:\n    maxQueueDelay: 2026-01-01\n", 10, 'spec.batching.maxQueueDelay is "2026-01-01"'),
        (GOOD + "  scaling:\n    maxReplicas: 3\n    schedules:\n      - {name: x, start: 0 8 * * 1-9, duration: 1h, minReplicas: 1}\n", 11, "is not a valid cron expression"),
        (GOOD + "  replicas: 2\n  replicas: 3\n", 10, "duplicate field replicas"),
        (GOOD + "speck: {}\n", 9, "speck is not a field"),
        (GOOD + "  scaling: &s {targets: *s}\n", 9, "an alias refers to an object that contains it"),
        (GOOD + "  replicas: !!set {a}\n", 5, "a value in spec is not valid JSON: Object of type set"),
        (GOOD.replace("  name: digits", "  name: digits\n  annotations:\n    prometheus.io/scrape: true"), 6, "metadata.annotations: prometheus.io/scrape is true, and not a string; quote it, for example 'true'"),
        (GOOD.replace("  name: digits", "  name: digits\n  labels: {v: 5}"), 5, "metadata.labels: v is 5, and not a string"),
        (GOOD.replace("  name: digits", "  name: digits\n  labels: {gpu: y}"), 5, "metadata.labels: gpu is y, and not a string; quote it, for example 'y'"),
        (GOOD.replace("  name: digits", "  name: digits\n  labels: {commit: 12345e7}"), 5, "metadata.labels: commit is 12345e7, and not a string"),
        (GOOD + "  runtime:\n    placement: {nodeSelector: {gpu: y}}\n", 10, "spec.runtime.placement.nodeSelector.gpu is true"),
        (GOOD + "  replicas: !!binary aGVsbG8=\n", 9, "aGVsbG8= is not a string in YAML; quote it"),
        (GOOD.replace("  name: digits", "  name: digits\n  labels: [a]"), 5, "metadata.labels is a list; it must be an object"),
        (GOOD.replace("  name: digits", "  name: digits\n  namespace: 5"), 5, "metadata.namespace is 5; it must be a string"),
        (GOOD.replace("name: digits", "name: on"), 4, "metadata.name is on; it must be a string, for example name: resnet50"),
        (GOOD.replace("name: digits", "name: null"), 3, "metadata.name is missing"),
        (GOOD.replace("name: digits", "name: Digits"), 4, "metadata.name is 'Digits' (6 characters); it must match"),
        (GOOD.replace("  name: digits", "  labels: {}"), 3, "metadata.name is missing"),
        (GOOD.replace("v1alpha1", "v1"), 1, "it must be serving.halcyon.dev/v1alpha1"),
        (GOOD.replace("ModelDeployment", "Modeldeployment"), 2, "kind is Modeldeployment; it must be ModelDeployment or BatchInference for serving.halcyon.dev/v1alpha1"),
        (GOOD[: GOOD.index("spec")] + "spec: []\n", 5, "spec is missing or not an object"),
        (GOOD + "---\n" + GOOD, 10, "this ModelDeployment is in line 1, too, and kubectl apply keeps only the last one; give it another name"),
        ("defaults: &d {}\n---\n" + GOOD + "  runtime: *d\n", 11, "found undefined alias 'd'; an anchor (&) counts only in its own document, up to the next ---"),
        (GOOD + "  replicas: [\n", 10, "invalid YAML: "),
        ("{{- if .Values.a }}\n" + GOOD, 1, "; if it is a template of Helm: helm template CHART | halcyon lint -f -"),
        (GOOD + "\x00", 9, "invalid YAML: special characters"),
        ("a: " + "[" * 600, 1, "nested too deeply"),
    ],
)  # fmt: skip
def test_findings_have_the_line_of_their_cause(text: str, line: int, message: str) -> None:
    (finding,) = lint(text)

    assert (finding[0], finding[1]) == (line, "error")
    assert message in finding[2]


def test_models_of_one_name_in_two_namespaces_are_different_objects() -> None:
    other = GOOD.replace("  name: digits", "  name: digits\n  namespace: team-b")

    assert lint(f"{GOOD}---\n{other}") == []


def test_all_errors_of_a_file_are_found_at_once() -> None:
    text = GOOD.replace("name: digits", "name: Digits").replace("kind: Model", "kind: model") + (
        "  replicas: '2'\n"
        "  nodeSelector: {a: b}\n"
        "  batching: {maxQueueDelay: 2026-01-01}\n"
        "  traffic: {accessLog: Off}\n"
        "  scaling:\n"
        "    minReplicas: 9\n"
        "    maxReplicas: 4\n"
        "    schedules: [{name: x, start: 0 8 * * 1-9, duration: 1h, minReplicas: 1}]\n"
        "runtime: {}\n"
    )

    assert [(finding.line, finding.rule) for finding in check(text, "f").findings] == [
        (2, "kind"),
        (4, "name"),
        (9, "invalid-value"),
        (10, "unknown-field"),
        (11, "invalid-value"),
        (12, "invalid-value"),
        (14, "conflicting-fields"),
        (16, "invalid-schedule"),
        (17, "unknown-field"),
    ]
    assert "did you mean spec.runtime?" in check(text, "f").findings[-1].message


def test_a_log_in_sarif_has_the_parts_that_the_format_requires() -> None:
    findings = check(GOOD + "  replicas: -1\nstatus: {}\n", "models/a.yaml").findings
    log = sarif(findings, "1.2.3")

    assert (log["version"], log["$schema"]) == ("2.1.0", "https://json.schemastore.org/sarif-2.1.0.json")
    ((driver, results),) = [(run["tool"]["driver"], run["results"]) for run in log["runs"]]
    assert (driver["name"], driver["version"]) == ("halcyon lint", "1.2.3")
    assert {rule["id"] for rule in driver["rules"]} == set(RULES)
    assert all(rule["shortDescription"]["text"] for rule in driver["rules"])
    assert [(result["ruleId"], result["level"]) for result in results] == [
        ("invalid-value", "error"),
        ("ignored-status", "warning"),
    ]
    for result in results:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"].startswith("digits: ")
        (place,) = result["locations"]
        assert place["physicalLocation"]["artifactLocation"] == {"uri": "models/a.yaml"}
        assert place["physicalLocation"]["region"]["startLine"] >= 1


def test_a_file_in_sarif_is_a_reference_of_a_uri() -> None:
    log = sarif(check(GOOD + "  replicas: -1\n", "my models\\a#1.yaml").findings, "1.2.3")
    ((result,),) = [run["results"] for run in log["runs"]]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "my%20models/a%231.yaml"}


def test_annotations_of_github_are_one_line_each() -> None:
    (line,) = github(check(GOOD + "  replicas: -1\n", "a,b.yaml").findings).splitlines()

    assert line == (
        "::error file=a%2Cb.yaml,line=9,title=invalid-value::digits: spec.replicas is -1: must be a whole number from 0 to 1000"
    )


def test_a_field_without_effect_and_a_status_are_warnings() -> None:
    text = GOOD + "  rollout:\n    strategy: Surge\n    canary: {}\nstatus: {}\n"

    assert [(line, level) for line, level, _ in lint(text)] == [(11, "warning"), (12, "warning")]


@pytest.mark.parametrize(
    ("resource", "warning"),
    [
        ("nvidia.com/mig-1g.10gb", "Triton reports no utilization of MIG slices (nvidia.com/mig-1g.10gb)"),
        ("nvidia.com/gpu.shared", "utilization covers the whole GPU behind nvidia.com/gpu.shared"),
        ("nvidia.com/gpu", ""),
    ],
)
def test_a_utilization_target_for_a_part_of_a_gpu_is_a_warning(resource: str, warning: str) -> None:
    target = "  scaling:\n    maxReplicas: 2\n    targets: {gpuUtilization: 70}\n"
    text = GOOD + f"  runtime:\n    gpu: {{count: 1, resourceName: {resource}}}\n" + target

    assert [(line, level) for line, level, _ in lint(text)] == ([(13, "warning")] if warning else [])
    assert all(warning in message for _, _, message in lint(text))


def test_documents_of_other_kinds_and_lists_are_gone_through() -> None:
    item = "\n".join("    " + line for line in (GOOD + "  replicas: -1").splitlines())
    other = GOOD.replace("digits", "letters")
    text = f"kind: Service\n---\n---\nkind: List\nitems:\n  -\n{item}\n  - kind: ConfigMap\n---\n{other}"

    checked = check(text, "f")
    assert checked.models == 2
    assert [(finding.line, finding.name) for finding in checked.findings] == [(15, "digits")]


def test_helm_template_is_recognized_after_a_circular_alias() -> None:
    findings = check("a: &a [*a]\n---\n{{- if .Values.a }}\n", "f").findings

    assert [finding.line for finding in findings] == [1, 3]
    assert findings[1].message.endswith("; if it is a template of Helm: helm template CHART | halcyon lint -f -")


def test_aliases_are_gone_through_once() -> None:
    bomb = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 60))

    assert check(f"a0: &a0 x\n{bomb}\n", "f").models == 0
    assert lint(f"apiVersion: {GOOD.split()[1]}\nkind: ModelDeployment\na0: &a0 x\n{bomb}\n")


def manifest(path: str, value: object) -> str:
    head = {"apiVersion": "serving.halcyon.dev/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "m"}}
    return yaml.safe_dump(head | {"spec": document(path, value)}, sort_keys=False)


def test_every_case_that_the_rules_refuse_is_refused_here_at_its_field() -> None:
    for path, value, _ in [*BROKEN_RULES, *FIELDS]:
        text = manifest(path, value)
        wrong = [line for line, level, _ in lint(text) if level == "error"]
        assert wrong, path
        assert min(wrong) > text.splitlines().index("spec:"), path


def test_every_case_that_they_take_is_taken_here() -> None:
    for path, value in ACCEPTED:
        assert [finding for finding in lint(manifest(path, value)) if finding[1] == "error"] == [], path


@given(st.text(max_size=60))
def test_a_text_is_either_read_or_named(text: str) -> None:
    assert check(text, "f").models >= 0


# The command.


@pytest.fixture
def good(tmp_path: Path) -> Path:
    (tmp_path / "good.yaml").write_text(GOOD)
    return tmp_path / "good.yaml"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["lint", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_folder_is_gone_through_and_its_findings_counted(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = good.parent / "deep" / "bad.yml"
    bad.parent.mkdir()
    bad.write_text(GOOD + "  replicas: -1\n")
    (good.parent / "README.md").write_text("no YAML: [")

    status, out, err = run(capsys, "-f", str(good.parent))
    assert (status, err) == (1, "")
    assert out.startswith(f"{bad}:9: error: digits: spec.replicas is -1: ")
    assert out.endswith("2 ModelDeployments in 2 files: 1 error, 0 warnings\n")


@pytest.mark.parametrize(
    ("texts", "summary"),
    [
        ((GOOD, BATCH), "1 ModelDeployment and 1 BatchInference in 1 file: 0 errors"),
        ((BATCH,), "1 BatchInference in 1 file: 0 errors"),
        ((BATCH, BATCH.replace("night", "day")), "2 BatchInferences in 1 file: 0 errors"),
        (("a: [",), "0 ModelDeployments in 1 file: 1 error"),
    ],
)
def test_objects_of_each_kind_are_counted(
    texts: tuple[str, ...], summary: str, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good.write_text("---\n".join(texts))

    assert run(capsys, "-f", str(good))[1].splitlines()[-1] == f"{summary}, 0 warnings"


def test_the_output_is_that_of_the_golden_file(
    good: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(good.parent)
    wrong = "  batching: {maxBatchSize: 0}\n  trafic: {}\n  scaling: {minReplicas: 9, maxReplicas: 4}\nstatus: {}\n"
    Path("model.yaml").write_text(GOOD + wrong)

    _, out, _ = run(capsys, "-f", "model.yaml")
    compared(GOLDEN / "lint.txt", out)


def test_json_holds_the_same(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good.write_text(GOOD + "  replicas: -1\n")

    status, out, _ = run(capsys, "-f", str(good), "-o", "json")
    (finding,) = json.loads(out)
    assert status == 1
    assert (finding["file"], finding["line"], finding["level"], finding["name"]) == (str(good), 9, "error", "digits")


def test_a_warning_counts_if_strict(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good.write_text(GOOD + "status: {}\n")

    assert run(capsys, "-f", str(good))[0] == 0
    assert run(capsys, "-f", str(good), "--strict")[0] == 1


def test_stdin_is_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(GOOD.encode())))

    assert run(capsys, "-f", "-") == (0, "1 ModelDeployment in 1 file: 0 errors, 0 warnings\n", "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "can't read it: No such file"),
        (b"\xff", "not UTF-8"),
        (b"kind: Service", "no ModelDeployment or BatchInference in it"),
        (
            b"apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService",
            "kind: ModelDeployment; docs/guides/migrating.md maps the fields of KServe",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_status_2(
    content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.yaml"
    if content is not None:
        file.write_bytes(content)

    status, out, err = run(capsys, "-f", str(file))
    assert (status, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    "content",
    [
        '{"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService"}',
        '{\n  "kind": "InferenceService",\n  "apiVersion": "serving.kserve.io/v1beta1"\n}',
        "apiVersion: 'mlops.seldon.io/v1alpha1'\nkind: Model",
    ],
    ids=["JSON", "JSON of several lines", "quotes"],
)
def test_files_of_other_servers_in_any_notation_name_the_guide(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(content)

    assert run(capsys, "-f", str(file))[0] == 2
    assert "docs/guides/migrating.md" in run(capsys, "-f", str(file))[2]


def test_a_batch_inference_is_checked_by_its_own_rules() -> None:
    good = """\
apiVersion: serving.halcyon.dev/v1alpha1
kind: BatchInference
metadata: {name: night}
spec:
  modelDeployment: digits
  input: {persistentVolumeClaim: {claimName: sets, path: rows.npz}}
  output: {persistentVolumeClaim: {claimName: sets, path: out}}
"""
    assert lint(good) == []
    (finding,) = lint(good + "  workers: 0\n")
    assert (finding[:2], "spec.workers" in finding[2]) == ((8, "error"), True)
