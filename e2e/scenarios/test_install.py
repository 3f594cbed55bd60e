"""The chart in a cluster with real pods: its own test."""

import pytest

from demo.kube import SYSTEM, Kube

pytestmark = pytest.mark.more


def test_helm_test_serves_a_tiny_model_asks_it_and_takes_it_away(kube: Kube) -> None:
    output = kube.helm("test", "halcyon", f"--namespace={SYSTEM}", "--logs", "--timeout=120s")

    assert f"{SYSTEM}/halcyon-test answers after" in output
    objects = ("modeldeployment/halcyon-test", *(f"{kind}/halcyon-test-ask" for kind in ("pod", "configmap")))
    kube("wait", "--for=delete", *objects, "configmap/halcyon-test", "--timeout=60s", namespace=SYSTEM)
