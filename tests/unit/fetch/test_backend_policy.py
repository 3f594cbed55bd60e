"""A site's list of backends, in the pod: what a model names, and what it brings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from halcyon.api.documents.model_overlay import Overlay
from halcyon.api.spec.parse import parse
from halcyon.render.site import Site
from tests.policies import policy
from tests.unit.fetch.test_main import Pod
from tests.unit.render.rendered import SITE, children, find

ALLOWED = "--backends=onnxruntime,tensorrt"


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    filled = Pod(tmp_path)
    filled.put("1/model.onnx")
    return filled


def test_a_model_of_a_backend_on_the_list_is_brought(pod: Pod) -> None:
    pod.put("1/model.plan")
    for own in ('backend: "onnxruntime"', 'platform: "tensorrt_plan"', 'platform: "onnxruntime_onnx"'):
        pod.put("config.pbtxt", own)
        assert pod.fetch(Overlay("m"), ALLOWED) == 0
    pod.put("config.pbtxt", "max_batch_size: 8")
    assert pod.fetch(Overlay("m", backend="tensorrt"), ALLOWED) == 0


@pytest.mark.parametrize(
    ("own", "part"),
    [
        ('backend: "python"', "names the backend python, and this site allows onnxruntime, tensorrt"),
        ('platform: "pytorch_libtorch"', "names the backend pytorch"),
        ('platform: "ensemble"', "names the backend ensemble"),
        (
            "max_batch_size: 8",
            'names no backend, and this site allows onnxruntime, tensorrt; for example backend: "onnxruntime"',
        ),
        ('backend: "onnxruntime" runtime: "libevil.so"', "has runtime, by which a model loads its own code"),
        (
            'backend: "onnxruntime" model_operations { op_library_filename: "/models/evil.so" }',
            "has model_operations, by which a model loads its own code",
        ),
        ('backend: "onnxruntime" newer_field: 1', "accepts no file with unknown fields"),
    ],
)
def test_a_model_whose_backend_is_not_on_the_list_is_refused(pod: Pod, own: str, part: str) -> None:
    pod.put("config.pbtxt", own)
    reason, message = pod.refusal(Overlay("m"), ALLOWED)
    assert reason == "ModelConfigInvalid"
    assert part in message
    assert not (pod.repository / "m").exists()


@pytest.mark.parametrize("place", ["libtriton_onnxruntime.so", "1/libtriton_onnxruntime.so", "1/libtriton_x.so.1"])
def test_a_backend_of_the_model_s_own_is_refused(pod: Pod, place: str) -> None:
    pod.put("config.pbtxt", 'backend: "onnxruntime"')
    pod.put(place)
    assert f"{place} is a backend of the model's own" in pod.refusal(Overlay("m"), ALLOWED)[1]
    assert pod.fetch() == 0


def test_a_list_with_nothing_in_it_allows_nothing(pod: Pod) -> None:
    pod.put("config.pbtxt", 'backend: "onnxruntime"')
    assert "this site allows none" in pod.refusal(Overlay("m"), "--backends=")[1]


def fetcher(site: Site) -> list[str]:
    spec = parse("digits", {"model": {"source": {"persistentVolumeClaim": {"claimName": "m"}}}})
    pod = find(children(spec, site=site), "Deployment", "digits-a")["spec"]["template"]["spec"]
    args: list[str] = pod["initContainers"][0]["args"]
    return [argument for argument in args if argument.startswith("--backends")]


def test_the_fetcher_gets_the_list_unless_the_namespace_is_exempt() -> None:
    listed = policy({"models.backends": ["onnxruntime", "tensorrt"]})
    assert fetcher(SITE) == []
    assert fetcher(replace(SITE, policy=listed)) == [ALLOWED]
    assert fetcher(replace(SITE, policy=listed.model_copy(update={"exempt_namespaces": ("team",)}))) == []
