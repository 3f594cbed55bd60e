"""Models whose server pods the operator scrapes, by the name under which Triton serves them."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.api.spec.parse import parse
from halcyon.control.autoscaling.balancer_errors import BalancerErrorStore
from halcyon.control.autoscaling.pod_scraper import PodScraper
from halcyon.kube.clock import SYSTEM_CLOCK
from tests.specs import OneSpec
from tests.unit.control.scope_builders import PVC, resource
from tests.unit.control.state.manual_caches import DIGITS, ManualCaches

SPEC = {"model": {"name": "new", "source": PVC}, "traffic": {"mode": "Direct"}}


@pytest.mark.parametrize(
    ("status", "name"), [({"model": {"name": "old"}}, "old"), ({"model": {"name": "new"}}, "new"), ({}, "new")]
)
def test_servers_are_scraped_under_the_name_that_is_routed(status: dict[str, Any], name: str) -> None:
    at = ManualCaches()
    stored = resource(SPEC, status=status)
    at.store(at.caches.resources, stored)
    scraper = PodScraper(at.caches, BalancerErrorStore(lambda *_: None), OneSpec(parse("digits", SPEC)), SYSTEM_CLOCK)

    assert scraper._scraped_models() == [(DIGITS, name)]
