"""What a rejected dry run says of the cluster's support for a field of pods."""

from __future__ import annotations

import asyncio

import pytest
from typing_extensions import override

from halcyon.control.state.pod_field_support import (
    IMAGE_VOLUMES,
    RECHECK_INTERVAL_S,
    RESOURCE_CLAIMS,
    PodField,
    PodFieldSupport,
)
from halcyon.kube import errors
from halcyon.kube.client import Object
from halcyon.kube.kinds import Kind
from tests.clocks import DrivenClock
from tests.unit.kube.memory_kube import MemoryKube

DROPPED = (
    'POST deployments: Deployment.apps "halcyon-pod-field-probe" is invalid: spec.template.spec.volumes[0]: '
    "Required value: must specify a volume type"
)
DENIED = (
    'POST deployments: deployments.apps "halcyon-pod-field-probe" is forbidden: ValidatingAdmissionPolicy '
    "'registries' with binding 'registries' denied request: images must come from registry.example.com"
)


class _Rejecting(MemoryKube):
    def __init__(self, message: str) -> None:
        super().__init__()
        self._message = message

    @override
    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
        raise errors.Refused(422, self._message)


@pytest.mark.parametrize(
    ("message", "field", "lacking"),
    [
        (DROPPED, IMAGE_VOLUMES, IMAGE_VOLUMES.lacking),
        (DENIED, IMAGE_VOLUMES, ""),
        (DENIED, RESOURCE_CLAIMS, ""),
    ],
)
async def test_a_field_is_unsupported_only_if_its_loss_was_the_reason(
    message: str, field: PodField, lacking: str
) -> None:
    assert await PodFieldSupport(_Rejecting(message), field).lacking("team") == lacking


async def test_a_field_that_the_dry_run_keeps_is_supported() -> None:
    assert await PodFieldSupport(MemoryKube(), IMAGE_VOLUMES).lacking("team") == ""


class _Slow(_Rejecting):
    """An API server that answers after other tasks have run, as any does, with an error of its own while it is `busy`."""

    busy = False

    @override
    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
        await asyncio.sleep(0)
        if self.busy:
            raise errors.Busy(503, "etcd has no leader")
        return await super().create(kind, obj, namespace=namespace, dry_run=dry_run)


async def test_models_that_are_checked_at_once_get_the_same_result() -> None:
    """As after a start of the operator, whose workers begin with several models."""
    support = PodFieldSupport(_Slow(DROPPED), IMAGE_VOLUMES)
    results = await asyncio.gather(*(support.lacking("team") for _ in range(3)))

    assert results == [IMAGE_VOLUMES.lacking] * 3


async def test_a_missing_feature_stays_missing_while_checks_fail() -> None:
    now, kube = 1000.0, _Slow(DROPPED)
    support = PodFieldSupport(kube, IMAGE_VOLUMES, DrivenClock(lambda: now))
    assert await support.lacking("team") == IMAGE_VOLUMES.lacking
    kube.busy = True
    now += RECHECK_INTERVAL_S

    assert await support.lacking("team") == IMAGE_VOLUMES.lacking
