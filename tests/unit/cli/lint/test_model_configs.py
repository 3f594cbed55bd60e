"""`halcyon lint`: the config.pbtxt of a ConfigMap in the same files."""

from __future__ import annotations

from pathlib import Path

import pytest

from halcyon.main import main
from halcyon.model_config import spec_check
from halcyon_cli.lint.checks import check
from halcyon_cli.lint.model_configs import config_maps

MODEL = """\
apiVersion: serving.halcyon.dev/v1alpha1
kind: ModelDeployment
metadata: {name: digits}
spec:
  batching: {maxQueueDelay: 1ms}
  model:
    source:
      configMap:
        name: m
        items: [{key: cfg, path: config.pbtxt}]
"""
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {cfg: 'backend: \"python\"'}\n"
GOOD = MAP.replace('"python"', '"python" max_batch_size: 8')


def lint(text: str) -> list[tuple[int, str, str]]:
    return [(finding.line, finding.rule, finding.message) for finding in check(text, "f").findings]


def test_an_error_of_the_merge_is_at_the_field_of_its_source() -> None:
    ((line, rule, message),) = lint(f"{MAP}---\n{MODEL}")

    assert (line, rule) == (14, "model-config")
    assert message.startswith("spec.model.source.configMap.name is m, and its key cfg: spec.batching needs a maximum")


def test_a_valid_configuration_and_a_missing_config_map_have_no_finding() -> None:
    assert lint(f"{GOOD}---\n{MODEL}") == []
    assert lint(MODEL) == []


@pytest.mark.parametrize(
    ("of_map", "of_model", "has_finding"), [("a", "a", True), ("", "a", True), ("a", "", True), ("b", "a", False)]
)
def test_a_config_map_of_another_namespace_is_another_one(of_map: str, of_model: str, *, has_finding: bool) -> None:
    def placed(text: str, namespace: str) -> str:
        return text.replace("{name:", f"{{namespace: {namespace}, name:", 1) if namespace else text

    assert bool(lint(f"{placed(MAP, of_map)}---\n{placed(MODEL, of_model)}")) is has_finding


def test_a_misspelt_field_that_triton_would_read_alone_is_a_warning() -> None:
    alone = MODEL.replace("  batching: {maxQueueDelay: 1ms}\n", "")
    ((_, rule, message),) = lint(f"{MAP.replace('backend', 'bakend')}---\n{alone}")

    assert rule == "unknown-config-field"
    assert "did you mean backend?" in message


def test_config_maps_are_found_in_lists_and_never_in_invalid_yaml() -> None:
    listed = "kind: List\nitems:\n- {kind: ConfigMap, metadata: {name: a}, binaryData: {x: aGk=}}\n- 3\n"

    assert [
        (config_map.name, dict(config_map.content.binary))
        for config_map in config_maps([listed, "kind: ConfigMap\n  x: ]"])
    ] == [("a", {"x": "aGk="})]


def test_files_of_one_call_belong_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "map.yaml").write_text(MAP)
    (tmp_path / "model.yaml").write_text(MODEL)

    assert main(["lint", "-f", str(tmp_path)]) == 1
    assert "model.yaml:9: error: digits: " in capsys.readouterr().out


def test_a_configuration_that_can_not_be_checked_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec_check, "is_available", lambda: False)

    ((_, rule, message),) = lint(f"{MAP}---\n{MODEL}")

    assert rule == "unchecked-config"
    assert "install the extra bench of halcyon-cli" in message


REPOSITORY = """\
apiVersion: serving.halcyon.dev/v1alpha1
kind: ModelDeployment
metadata: {name: digits}
spec:
  model:
    source:
      configMap:
        name: m
        items:
        - {key: cfg, path: digits/config.pbtxt}
        - {key: code, path: resize/1/model.py}
"""


def test_a_version_of_a_policy_without_a_folder_is_found() -> None:
    text = "version_policy { specific { versions: [2] } }"
    files = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata: {{cfg: '{text}', code: x}}\n"
    assert lint(f"{files}---\n{REPOSITORY}") == [], "the folder of digits has no version here"

    own = REPOSITORY.replace("resize/1/", "digits/1/")
    assert lint(f"{files.replace('2', '1')}---\n{own}") == []
    ((_, rule, message),) = lint(f"{files}---\n{own}")
    assert rule == "model-config"
    assert "version_policy in config.pbtxt of digits has only 2, and the source has the version folders 1" in message


@pytest.mark.parametrize(
    ("group", "runtime", "has_finding"),
    [
        ("kind: KIND_GPU", "{}", True),
        ("gpus: [ 0 ]", "{}", True),
        ("kind: KIND_CPU", "{}", False),
        ("count: 2", "{}", False),
        ("kind: KIND_GPU", "{gpu: {count: 1}}", False),
    ],
)
def test_an_instance_on_a_gpu_without_gpus_in_the_spec_warns(group: str, runtime: str, *, has_finding: bool) -> None:
    files = GOOD.replace("max_batch_size: 8", f"max_batch_size: 8 instance_group {{ {group} }}")
    model = MODEL.replace("spec:\n", f"spec:\n  runtime: {runtime}\n")
    rules = [rule for _, rule, _ in lint(f"{files}---\n{model}")]

    assert rules == ["missing-gpu"] * has_finding


def test_a_missing_step_of_an_ensemble_is_found_in_the_config_map() -> None:
    text = 'platform: "ensemble" ensemble_scheduling { step [ { model_name: "resize" } ] }'
    files = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata: {{cfg: '{text}', code: x}}\n"
    assert lint(f"{files}---\n{REPOSITORY}") == []

    ((line, rule, message),) = lint(f"{files.replace('resize', 'crop')}---\n{REPOSITORY}")
    assert (line, rule) == (13, "model-config")
    assert message.startswith(
        "spec.model.source.configMap.name is m: digits is an ensemble with the step 'crop', and the source has no model folder"
    )
    assert "it has digits, resize. " in message
