"""Errors that tell what would have been right."""

from __future__ import annotations

import pytest

from halcyon_simulator.policies.peers import PEERS, PolicyError, build
from halcyon_simulator.policies.peers.parameters import knob_text, names, parsed
from tests.simulator.policies.peers.open_loop import case


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("knative", {}, "there is no policy 'knative'; the policies are hpa, keda, keda-http, kpa, "),
        (
            "kpa",
            {"windw": "3"},
            (
                "policy kpa has no knob 'windw'; its knobs are target, target_percentage, stable_window_s, "
                "panic_window_percentage, panic_threshold_percentage, max_scale_up_rate, max_scale_down_rate, "
                "scale_down_delay_s, scale_to_zero_grace_period_s, tick_s; for example kpa:target=8,stable_window_s=30"
            ),
        ),
        ("kpa", {"target": "0"}, "policy kpa: target is '0' and must be above 0; for example kpa:target=8"),
        ("kpa", {"target": "many"}, "policy kpa: target is 'many' and must be a number; for example"),
        ("kpa", {"target": "nan"}, "policy kpa: target is 'nan' and must be above 0"),
        (
            "ray",
            {"upscale_delay_s": "-1"},
            "policy ray: upscale_delay_s is '-1' and must be 0 or more; for example ray:",
        ),
        ("static", {"n": "2.5"}, "policy static: n is '2.5' and must be a whole number; for example static:n=4"),
        ("static", {"n": "0"}, "policy static: n is '0' and must be 1 or more"),
        ("hpa", {"metric": "cpu"}, "policy hpa: metric is 'cpu' and must be one of inflight, queue, utilisation"),
        ("hpa", {"behavior": "fast"}, "policy hpa: behavior is 'fast' and must be one of none, {}"),
        ("keda", {"use_cached_metrics": "yes"}, "policy keda: use_cached_metrics is 'yes' and must be true or false"),
        (
            "hpa",
            {"down_window_s": "60"},
            (
                "policy hpa: down_window_s is 60, but behavior is none, whose windows are fixed (0 s up, 300 s down); "
                "for example hpa:behavior={},down_window_s=60"
            ),
        ),
        ("hpa", {"behavior": "{}", "down_window_s": "3601"}, "down_window_s is '3601' and must be from 0 to 3600"),
    ],
)
def test_an_error_names_policy_knob_value_and_a_good_example(name: str, params: dict[str, str], message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        build(name, params, case())
    assert message in str(caught.value)


@pytest.mark.parametrize("name", sorted(PEERS))
def test_the_example_of_a_message_is_good(name: str) -> None:
    build(name, dict(part.split("=") for part in PEERS[name].example.split(",")), case())


@pytest.mark.parametrize("name", sorted(PEERS))
def test_knobs_survive_being_written_and_read(name: str) -> None:
    defaults = PEERS[name].knobs()
    params = {
        knob: knob_text(value) for knob in names(PEERS[name].knobs) if (value := getattr(defaults, knob)) is not None
    }
    assert parsed(name, PEERS[name].knobs, params, example="") == defaults
