"""README's blocks: each is one that e2e/readme or a benchmark runs, and the picture is the recorded session."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import jsonschema

from benchmarks.adoption import first_model
from e2e.blocks import blocks
from e2e.readme.test_readme import README, REGISTRY
from generators import recording
from images.__main__ import VALUES
from images.engine import kind_values
from tests.yaml_text import loaded

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "halcyon"


def test_every_shell_block_is_run_by_a_test_or_a_benchmark() -> None:
    kind, cluster, debian = blocks(README, "sh")

    assert kind.startswith("make kind ")
    assert f"make images push REGISTRY={REGISTRY}" in cluster
    assert cluster.splitlines()[-1] == "kubectl get mdep"
    assert [line.split()[:2] for line in debian.splitlines()] == [["make", "demo"], ["make", "test"]]
    assert blocks(README, "console") == []


def test_images_are_built_by_docker_alone_if_it_pushes_them() -> None:
    assert "add `WITH=docker` to `make images push`" in README.read_text()
    command = ["make", "--dry-run", "images", "push", f"REGISTRY={REGISTRY}"]
    with_root, without = (
        subprocess.run([*command, *more], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for more in ([], ["WITH=docker"])
    )
    assert "-m images build\n" in with_root
    assert "-m images build" not in without
    assert f"-m images push --registry {REGISTRY} " in without
    assert "--with docker" in without


def test_both_clusters_need_three_commands_until_the_model_is_applied() -> None:
    for block in blocks(README, "sh")[:2]:
        commands = [line for line in block.splitlines() if not line.startswith("kubectl get")]
        assert len(commands) == first_model.COMMANDS
        assert f"--values {VALUES}" in commands[1]
        assert commands[2].startswith("kubectl apply -f ")
    assert first_model.readme_commands()[2].endswith(first_model.EXAMPLE)


def test_values_for_kind_are_values_of_the_chart() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = loaded((CHART / "values.yaml").read_text())
    written = kind_values()
    for section in written:
        for image, place in written[section].items():
            values[section][image] |= place

    assert [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(values)] == []
    assert written["images"]["triton"] == written["test"]["image"]


def test_the_picture_is_the_recorded_session() -> None:
    cast = first_model.CAST.read_text()

    assert recording.PICTURE.read_text() == recording.svg(cast)
    assert f"]({recording.PICTURE.relative_to(ROOT)})" in README.read_text()
    assert re.search(r"^\$ kubectl apply", "\n".join(text for _, text in recording.lines(cast)), re.MULTILINE)


def test_waits_of_a_recording_are_shortened() -> None:
    assert recording.paced([0.0, 0.01, 60.0]) == [0.15, 0.3, 1.5]
