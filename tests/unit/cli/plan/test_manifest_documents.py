"""`halcyon plan -f FILE`: the objects that files of kubectl, Helm and users have, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from halcyon.main import main
from halcyon_cli.errors import InputError
from halcyon_cli.plan.manifest_documents import objects
from tests.unit.cli.plan.test_observations_file import MODEL


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("# Source: chart/templates/x.yaml\n---\n---\nkind: A\n---\n", ["A"]),
        ("- kind: A\n", []),
        ("kind: List\nitems:\n- kind: A\n- kind: B\n- null\n", ["A", "B"]),
        ("kind: ModelDeploymentList\nitems: [{kind: A}]\n", ["A"]),
        ("kind: List\nitems: null\n", ["List"]),
        ("\ufeffkind: A\r\nmetadata:\r\n  name: a\r\n", ["A"]),
        ("x: &x {a: 1}\ny: *x\nkind: A\n", ["A"]),
        ("? 5\n: b\n2024-01-01: c\nkind: A\n", ["A"]),
        ("a: 2024-13-45\nkind: A\n", ["A"]),
    ],
)
def test_objects_are_those_of_all_documents_and_lists(text: str, names: list[str]) -> None:
    assert [obj["kind"] for obj in objects(text, "f")] == names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "f: invalid YAML: while parsing"),
        # Before Python 3.14, the message ends without ", not 13".
        ("a: !!timestamp 2024-13-45", "f: invalid YAML: month must be in 1..12"),
        ("a: !!timestamp 2024-13-45", "; if it is text, quote it"),
        ("a: " + 3000 * "[", "f: invalid YAML: nested too deeply"),
        ("a: &a [*a]", "f: invalid YAML: an alias refers to an object that contains it"),
    ],
)
def test_text_that_is_not_yaml_is_reported_with_its_file(text: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        objects(text, "f")
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("models", "status", "words"),
    [
        ([{}], 0, "to create"),
        ([{}, {"namespace": "other"}], 2, "2 objects of kind ModelDeployment have the name digits"),
        ([{"name": None}], 2, "a ModelDeployment has no metadata.name; for example metadata: {name: resnet50}"),
        ([{"namespace": ["x"]}], 2, "metadata.namespace is ['x']; it must be a string, for example team-a"),
    ],
)
def test_the_planned_model_is_the_only_one_of_its_name(
    models: list[dict[str, object]], status: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = [yaml.safe_load(MODEL) | {"metadata": {"name": "digits"} | meta} for meta in models]
    (tmp_path / "list.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert main(["plan", "--offline", "-f", str(tmp_path / "list.json")]) == status
    captured = capsys.readouterr()
    assert words in captured.out + captured.err
