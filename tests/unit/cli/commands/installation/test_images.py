"""`halcyon images -f FILE`: images of rendered manifests, and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from halcyon_cli.commands.app import run

MODEL = """\
kind: ModelDeployment
spec:
  model: {source: {image: {reference: registry/model@sha256:1}}}
  runtime: {image: registry/triton@sha256:2}
"""


@pytest.mark.parametrize("kind", ["List", "ModelDeploymentList"])
def test_images_of_the_items_of_a_list_are_printed(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, items = tmp_path / "models.yaml", MODEL.replace("\n", "\n  ")
    file.write_text(f"# Source: a.yaml\n---\nkind: {kind}\nitems:\n- {items}\n---\nbuilt: 2026-13-45\n")
    assert run(["images", "-f", str(file)]) == 0
    assert capsys.readouterr().out.split() == ["registry/model@sha256:1", "registry/triton@sha256:2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "invalid YAML: while parsing"),
        ("a: " + 3000 * "[", "invalid YAML: nested too deeply"),
        ("a: &a [*a]", "an alias refers to an object that contains it"),
    ],
)
def test_manifests_that_are_not_yaml_are_reported(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(text)
    assert run(["images", "-f", str(tmp_path / "a.yaml")]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "\n", "---\n# Source: a.yaml\n---\n"])
def test_manifests_without_an_object_are_an_error(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As from a pipe in which `helm template` failed."""
    (tmp_path / "a.yaml").write_text(text)
    assert run(["images", "-f", str(tmp_path / "a.yaml")]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "a.yaml: no objects; pass rendered manifests" in shown.err


def test_models_without_an_image_print_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text("kind: ModelDeployment\nspec: {}\n")
    assert run(["images", "-f", str(tmp_path / "a.yaml")]) == 0
    assert capsys.readouterr().out == ""
