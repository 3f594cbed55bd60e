"""The site's settings for measurements, from the operator's Deployment or the agents' pods."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon_cli.bench.place.site import BenchSite, site_of
from halcyon_cli.errors import InputError

OPERATOR: dict[str, Any] = {
    "metadata": {
        "annotations": {
            "serving.halcyon.dev/bench-image": "r.example.com/halcyon-bench@sha256:ab",
            "serving.halcyon.dev/bench-priority-class": "halcyon-bench",
            "serving.halcyon.dev/bench-carbon-intensity": "380",
        }
    },
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {"args": ["operator", "--image-pull-secret=reg", "--network-policies={}", "--gpu-budget=8"]}
                ]
            }
        }
    },
}


def agent(image: str) -> dict[str, Any]:
    return {
        "spec": {
            "containers": [{"image": image}],
            "imagePullSecrets": [{"name": "s"}],
            "securityContext": {"runAsUser": 1},
        }
    }


def test_settings_are_annotations_of_the_operator() -> None:
    expected = BenchSite("r.example.com/halcyon-bench@sha256:ab", "halcyon-bench", ("reg",), True, True, 8, "380")
    assert site_of([OPERATOR], []) == expected


def test_image_follows_from_the_agents_image() -> None:
    assert (
        site_of([], [agent("r.example.com:5000/ml/halcyon-operator:1.2")]).image
        == "r.example.com:5000/ml/halcyon-bench:1.2"
    )


def test_image_by_option_wins() -> None:
    assert site_of([OPERATOR], [], image="x:1").image == "x:1"
    assert site_of([], [], image="x:1").image == "x:1"


@pytest.mark.parametrize("agents", [[], [agent("r.example.com/halcyon-operator@sha256:ab")], [agent("other:1")]])
def test_unknown_image_says_how_to_push_it(agents: list[dict[str, Any]]) -> None:
    with pytest.raises(
        InputError, match=r"--bench-image registry.example.com/halcyon/halcyon-bench:dev.*make images push"
    ):
        site_of([], agents)
