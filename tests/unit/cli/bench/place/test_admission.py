"""What refuses a measurement before anything is made: quotas and the pods that they are asked for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from halcyon_cli.bench.place.admission import PlannedPods, all_gpus, check_free, gpus, lacking_budget, lacking_quota
from halcyon_cli.bench.place.client_job import BENCH_LABEL
from halcyon_cli.errors import InputError
from halcyon_cli.kube.object_writer import ObjectWriter


def pods(name: str, count: int, **limits: str) -> PlannedPods:
    template = {"containers": [{"name": name, "resources": {"limits": limits, "requests": limits}}]}
    return PlannedPods(name, template, {}, count)


def quota(**amounts: tuple[str, str]) -> dict[str, Any]:
    hard = {name.replace("__", ".").replace("_", "/"): pair[0] for name, pair in amounts.items()}
    used = {name.replace("__", ".").replace("_", "/"): pair[1] for name, pair in amounts.items()}
    return {"metadata": {"name": "team"}, "spec": {}, "status": {"hard": hard, "used": used}}


ALL = [pods("server", 1, cpu="2"), pods("balancer", 2, cpu="1"), pods("client", 1, cpu="1")]


def test_quota_with_room_for_all_pods_is_no_problem() -> None:
    assert lacking_quota([quota(pods=("10", "6"), cpu=("10", "5"))], ALL) == ""


def test_quota_without_room_is_named_with_its_figures() -> None:
    message = lacking_quota([quota(cpu=("10", "6"))], ALL)
    assert message.startswith(
        "the measurement needs 1 client pod more, but ResourceQuota team allows 0: cpu is 6 of 10 used"
    )
    assert "--live" in message


def test_gpus_of_all_pods_are_those_of_copies_at_the_same_time() -> None:
    first, second = pods("server", 2, **{"nvidia.com/gpu": "2"}), pods("server", 1, **{"nvidia.com/gpu": "1"})
    assert gpus([first, second, *ALL]) == {"nvidia.com/gpu": 2}
    assert all_gpus([first, second, *ALL]) == {"nvidia.com/gpu": 5}


def test_quota_of_gpus_refuses_the_server() -> None:
    template = {
        "containers": [
            {"name": "triton", "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}}
        ]
    }
    server = PlannedPods("server", template, {}, 1)
    full = {
        "metadata": {"name": "team"},
        "spec": {},
        "status": {"hard": {"requests.nvidia.com/gpu": "4"}, "used": {"requests.nvidia.com/gpu": "4"}},
    }
    assert "requests.nvidia.com/gpu is 4 of 4 used" in lacking_quota([full], [server])
    assert gpus([server, *ALL]) == {"nvidia.com/gpu": 1}


def test_gpu_budget_refuses_with_its_holders() -> None:
    def holding(name: str, replicas: int, count: int = 2) -> dict[str, Any]:
        spec = {"replicas": replicas, "runtime": {"gpu": {"count": count}}}
        return {"metadata": {"namespace": "team", "name": name}, "spec": spec}

    others = [holding("a", 1), holding("b", 2), holding("cpu", 9, 0)]
    assert lacking_budget(others, holding("b-bench", 1), 8) == ""
    message = lacking_budget(others, holding("b-bench", 1), 7)
    assert message.startswith(
        "a copy needs 2 GPUs, and the site's GPU budget (chart value gpuBudget) is 7, of which models hold 6: team/b 4, team/a 2."
    )
    raised = holding("b", 2)
    raised["spec"]["scaling"] = {"minReplicas": 3, "maxReplicas": 9}
    assert "of which models hold 8: team/b 6" in lacking_budget([holding("a", 1), raised], holding("b-bench", 1), 8)


class _Jobs:
    """A cluster with one Job, which has these labels."""

    namespace = "team"

    def __init__(self, labels: dict[str, str]) -> None:
        self._labels = labels

    def find(self, *_: object) -> dict[str, Any]:
        return {"metadata": {"labels": self._labels, "creationTimestamp": "2026-11-30T10:00:00Z"}}


def test_foreign_job_with_the_name_of_a_measurement_is_not_called_one() -> None:
    with pytest.raises(InputError, match=r"Job digits-bench exists in namespace team, and isn't one of a measurement"):
        check_free(cast(ObjectWriter, _Jobs({"app": "digits"})), "digits", copies=False)
    with pytest.raises(InputError, match="digits is being measured since 2026-11-30"):
        check_free(cast(ObjectWriter, _Jobs({BENCH_LABEL: "digits"})), "digits", copies=False)
