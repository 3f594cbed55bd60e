from __future__ import annotations

from typing import Any

import pytest
import yaml

from halcyon_cli.lint.checks import check
from halcyon_tune.errors import TuneError
from halcyon_tune.patch import checked, command, duration, merged, patch
from halcyon_tune.points import Configuration
from halcyon_tune.space import Space

TODAY = Configuration(instances=1, max_batch=8, delay_s=0.0005)
SPEC: dict[str, Any] = {
    "model": {"source": {"uri": "s3://models/m"}},
    "runtime": {"gpu": {"count": 1}},
    "batching": {"maxBatchSize": 8, "maxQueueDelay": "500us"},
}


def patch_of(configuration: Configuration, today: Configuration = TODAY, parameter: str = "") -> dict[str, Any]:
    space = Space(today=today, configurations=(today, configuration), tuned=(), left_out=(), thread_parameter=parameter)
    return patch(space, configuration)


def test_patch_has_the_fields_that_differ() -> None:
    assert patch_of(Configuration(instances=2, max_batch=16, delay_s=0.0005)) == {
        "spec": {"batching": {"maxBatchSize": 16}, "runtime": {"instancesPerGPU": 2}}
    }


def test_patch_of_todays_settings_is_empty() -> None:
    assert patch_of(TODAY) == {}


def test_delay_of_zero_is_written_since_the_models_own_would_stay() -> None:
    assert patch_of(Configuration(instances=1, max_batch=8)) == {"spec": {"batching": {"maxQueueDelay": "0us"}}}


@pytest.mark.parametrize(("seconds", "text"), [(0.002, "2ms"), (0.00075, "750us"), (0.0, "0us"), (1.5, "1500ms")])
def test_delays_are_durations_of_the_api(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_preferred_sizes_never_exceed_the_largest_batch() -> None:
    today = Configuration(max_batch=16, preferred=(16,))
    assert patch_of(Configuration(max_batch=8, preferred=(16,)), today)["spec"]["batching"] == {
        "maxBatchSize": 8,
        "preferredBatchSizes": [8],
    }


def test_preferred_sizes_of_an_unknown_largest_batch_stay() -> None:
    today = Configuration(max_batch=1, preferred=(4,))
    assert patch_of(today, today) == {}
    assert patch_of(Configuration(instances=2, max_batch=1, preferred=(4,)), today) == {
        "spec": {"runtime": {"instancesPerGPU": 2}}
    }


def test_threads_become_the_parameter_of_the_backend() -> None:
    change = patch_of(
        Configuration(instances=1, max_batch=8, delay_s=0.0005, threads=4), parameter="intra_op_thread_count"
    )
    assert change == {"spec": {"model": {"parameters": {"intra_op_thread_count": "4"}}}}


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration(instances=8, max_batch=32, delay_s=0.002, preferred=(16, 32), threads=2),
        Configuration(instances=1, max_batch=1),
        Configuration(instances=64, max_batch=256, delay_s=0.00075),
    ],
)
def test_patched_spec_passes_lint(configuration: Configuration) -> None:
    change = patch_of(configuration, parameter="intra_op_thread_count")
    document = {
        "apiVersion": "serving.halcyon.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "m"},
        "spec": merged(SPEC, change["spec"]),
    }
    result = check(yaml.safe_dump(document), "m.yaml")
    assert result.models == 1
    assert [finding.message for finding in result.findings if finding.level == "error"] == []
    assert checked("m", SPEC, change) == change


def test_patch_that_the_api_server_would_reject_is_refused() -> None:
    with pytest.raises(TuneError, match="maxBatchSize"):
        checked("m", SPEC, {"spec": {"batching": {"maxBatchSize": 0}}})


def test_command_is_one_that_kubectl_takes() -> None:
    assert command("m", "team", {"spec": {"runtime": {"instancesPerGPU": 2}}}) == (
        'kubectl patch modeldeployment m -n team --type merge -p \'{"spec":{"runtime":{"instancesPerGPU":2}}}\''
    )


def test_the_command_is_for_the_cluster_of_the_tuning() -> None:
    change = {"spec": {"batching": {"maxBatchSize": 8}}}
    assert command("m", "team", change) == (
        """kubectl patch modeldeployment m -n team --type merge -p '{"spec":{"batching":{"maxBatchSize":8}}}'"""
    )
    assert command("m", "team", change, "--context prod").startswith(
        "kubectl patch modeldeployment m -n team --context prod --type merge"
    )
