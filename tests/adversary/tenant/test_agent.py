"""The address to which an agent sends its token, if a tenant edits the plan."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from halcyon.api.documents.balancer_plan import BalancerPlan, CollectorAddress
from halcyon.balancer.agent import main
from halcyon.balancer.agent.settings import AgentSettings, collector_of

EDITED = CollectorAddress("evil.example", 443, "evil.example", "CA of the tenant")
OURS = ("halcyon-agents.halcyon-system.svc", 10250, "halcyon.halcyon-system.svc")


def rendered() -> tuple[AgentSettings, BalancerPlan]:
    """Return the settings and the plan of the agent in the rendered balancer of a model."""
    objects = list(yaml.safe_load_all((Path(__file__).parents[2] / "golden" / "minimal.yaml").read_text()))
    (pod,) = (
        document["spec"]["template"]["spec"]
        for document in objects
        if (document["kind"], document["metadata"]["name"]) == ("Deployment", "digits-balancer")
    )
    (plan,) = (document["data"]["plan.json"] for document in objects if "plan.json" in document.get("data", {}))
    parser = argparse.ArgumentParser()
    main.add_arguments(parser)
    (agent,) = pod["initContainers"]
    return main.settings(parser.parse_args(agent["args"][1:])), BalancerPlan.from_json(plan)


@pytest.mark.parametrize("edited", [False, True])
def test_the_token_goes_to_the_address_in_the_pods_arguments(*, edited: bool) -> None:
    settings, plan = rendered()
    collector = collector_of(settings, replace(plan, collector=EDITED) if edited else plan)
    assert collector is not None
    assert (collector.host, collector.port, collector.server_name) == OURS
    assert collector.ca_pem == ("CA of the tenant" if edited else "CA")


def test_an_agent_of_an_earlier_release_uses_the_plan() -> None:
    settings, plan = rendered()
    assert collector_of(replace(settings, collector=None), plan) == plan.collector
    assert collector_of(settings, replace(plan, collector=None)) is None
