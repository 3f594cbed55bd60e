from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.control.objects import resource_quotas
from halcyon.control.objects.resource_quotas import Promised
from halcyon.kube.client import Object

GPU = "requests.nvidia.com/gpu"


def pod(*, requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **more: Any) -> Object:
    triton = {"resources": {"requests": requests or {}, "limits": limits or {}}}
    fetch = {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}}
    return {"initContainers": [fetch], "containers": [triton], **more}


GPU_POD = pod(requests={"cpu": "2", "memory": "8Gi"}, limits={"memory": "8Gi", "nvidia.com/gpu": "1"})


def quota(name: str = "team", *, hard: dict[str, str], used: dict[str, str], **spec: Any) -> Object:
    document = {
        "metadata": {"namespace": "ml", "name": name, "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used},
    }
    return resource_quotas.project(document)


def allowed(*quotas: Object, template: Object = GPU_POD, present: int = 2) -> int | None:
    limit = resource_quotas.tightest_limit(quotas, template, present=present)
    return None if limit is None else limit.pods


def test_pods_granted_to_others_are_no_free_capacity_of_a_quota() -> None:
    quotas = (
        quota(hard={GPU: "8"}, used={GPU: "2"}),
        quota("cpu", hard={"requests.cpu": "9"}, used={"requests.cpu": "2"}),
    )
    two_gpus = pod(limits={"nvidia.com/gpu": "2"})
    limit = resource_quotas.tightest_limit(quotas, GPU_POD, present=2, promised=[Promised(two_gpus, 2)])
    assert limit is not None
    assert limit.pods == 4
    assert limit.describe() == (
        "ResourceQuota team allows 4: requests.nvidia.com/gpu is 2 of 8 used, and 4 are granted to other models"
    )
    of_high = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
    scoped = quota(hard={GPU: "8"}, used={GPU: "2"}, scopeSelector=of_high)
    limit = resource_quotas.tightest_limit(
        [scoped], GPU_POD | {"priorityClassName": "high"}, present=2, promised=[Promised(two_gpus, 2)]
    )
    assert limit is not None
    assert limit.pods == 8


def test_a_claim_counts_against_a_quota_on_claims() -> None:
    resource = "count/resourceclaims.resource.k8s.io"
    of_template = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
    of_mig = "requests.nvidia.com/mig-1g.10gb"

    claiming = pod(resourceClaims=[of_template, {"name": "shared", "resourceClaimName": "there"}])
    assert allowed(quota(hard={resource: "4"}, used={resource: "3"}), template=claiming) == 3
    assert allowed(quota(hard={resource: "4"}, used={resource: "3"})) is None
    slices = pod(limits={"nvidia.com/mig-1g.10gb": "2"})
    assert allowed(quota(hard={of_mig: "8", GPU: "0"}, used={of_mig: "4", GPU: "0"}), template=slices) == 4


@pytest.mark.parametrize(
    ("hard", "used", "pods"),
    [
        ({GPU: "8"}, {GPU: "2"}, 8),
        ({GPU: "8"}, {GPU: "7"}, 3),
        ({GPU: "8"}, {GPU: "8"}, 2),
        ({GPU: "1"}, {GPU: "2"}, 2),  # lowered below what runs: nobody is taken away for it
        ({GPU: "8"}, {}, 10),
        ({GPU: "8e0"}, {GPU: "2"}, 8),  # a form that the API server keeps
        ({GPU: "1E1"}, {GPU: "20e-1"}, 10),
        ({GPU: "1e3000"}, {GPU: "2"}, 2**63 - 1),
        ({"cpu": "10"}, {"cpu": "5500m"}, 4),
        ({"requests.cpu": "10"}, {"requests.cpu": "5500m"}, 4),
        ({"limits.memory": "64Gi"}, {"limits.memory": "40Gi"}, 5),
        ({"pods": "10"}, {"pods": "9"}, 3),
        ({"count/pods": "10"}, {"count/pods": "9"}, 3),
        ({"pods": "10", GPU: "3"}, {"pods": "2", GPU: "2"}, 3),
        ({"limits.cpu": "1"}, {"limits.cpu": "1"}, None),  # these pods have no limit on cpu
        ({"requests.amd.com/gpu": "0"}, {}, None),
        ({"count/secrets": "1"}, {"count/secrets": "1"}, None),
    ],
)
def test_the_tightest_resource_counts(hard: dict[str, str], used: dict[str, str], pods: int | None) -> None:
    assert allowed(quota(hard=hard, used=used)) == pods


def test_the_tightest_quota_is_named_with_its_figures() -> None:
    wide, tight = (
        quota("wide", hard={"pods": "50"}, used={"pods": "9"}),
        quota("team", hard={GPU: "4"}, used={GPU: "4"}),
    )
    limit = resource_quotas.tightest_limit([wide, tight], GPU_POD, present=4)
    assert limit is not None
    assert limit.describe() == "ResourceQuota team allows 4: requests.nvidia.com/gpu is 4 of 4 used"


@pytest.mark.parametrize(
    ("spec", "template", "counts"),
    [
        ({"scopes": ["NotTerminating"]}, GPU_POD, True),
        ({"scopes": ["Terminating"]}, GPU_POD, False),
        ({"scopes": ["NotBestEffort"]}, GPU_POD, True),
        ({"scopes": ["BestEffort"]}, GPU_POD, False),
        ({"scopes": ["NotTerminating", "BestEffort"]}, GPU_POD, False),
        ({"scopes": ["SomethingNew"]}, GPU_POD, False),
        ({"scopeSelector": {"matchExpressions": [_in := {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}, GPU_POD, False),
        ({"scopeSelector": {"matchExpressions": [_in]}}, {**GPU_POD, "priorityClassName": "high"}, True),
        ({"scopeSelector": {"matchExpressions": [_in]}}, {**GPU_POD, "priorityClassName": "low"}, False),
        ({"scopeSelector": {"matchExpressions": [_in | {"operator": "NotIn"}]}}, {**GPU_POD, "priorityClassName": "low"}, True),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}}, GPU_POD, False),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}}, GPU_POD, True),
    ],
)  # fmt: skip
def test_a_quota_with_scopes_counts_where_all_of_them_match(spec: Object, template: Object, *, counts: bool) -> None:
    full = quota(hard={"pods": "3"}, used={"pods": "3"}, **spec)
    assert (allowed(full, template=template) is not None) == counts


def test_a_missing_request_is_the_limit_and_large_init_containers_count() -> None:
    only_limits = pod(limits={"memory": "128Mi", "cpu": "1"})
    assert resource_quotas.charges(only_limits)["requests.cpu"] == 1
    # The fetcher's limit is larger than the server's.
    assert resource_quotas.charges(only_limits)["limits.memory"] == 256 * 2**20
    assert resource_quotas.charges(GPU_POD)[GPU] == resource_quotas.charges(GPU_POD)["limits.nvidia.com/gpu"] == 1


def test_a_pod_without_init_containers_counts_for_its_containers() -> None:
    alone = {"containers": GPU_POD["containers"]}
    assert resource_quotas.charges(alone)["requests.cpu"] == 2


def test_an_unreadable_quota_is_no_limit() -> None:
    assert allowed(quota(hard={"pods": "many"}, used={"pods": "1"})) is None


@given(hard=st.integers(0, 200), used=st.integers(0, 200), present=st.integers(0, 50), gpus=st.integers(1, 8))
def test_free_capacity_covers_running_pods_and_never_exceeds_the_quota(
    hard: int, used: int, present: int, gpus: int
) -> None:
    template = pod(limits={"nvidia.com/gpu": str(gpus)})
    pods = allowed(quota(hard={GPU: str(hard)}, used={GPU: str(used)}), template=template, present=present)
    assert pods is not None
    assert pods >= present
    assert pods == present or used + (pods - present) * gpus <= hard
