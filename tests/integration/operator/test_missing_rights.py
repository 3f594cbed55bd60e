"""Each rule of the chart's roles is needed: one after the other is taken away from a running operator, which names the right that it lacks
in its log and in /metrics, and works again when the rule is back.

The roles are real ones, taken away and given back at the API server; the proxy only asks with the rights of the chart's ServiceAccount.
So that the operator asks at once for what it asks seldom, its watches are broken, or the model is changed.
"""

import asyncio
import contextlib
import copy
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.kubectl import Kubectl
from halcyon.api.documents.observation_report import AUDIENCE
from halcyon.kube import kinds
from tests import figures
from tests.integration.autoscaling.test_direct_scaling import Agent, record, servers
from tests.integration.charts import Object, Values, render
from tests.integration.operator.test_leader_election import metrics_response, token
from tests.integration.operator.test_rights import OPTIONAL, ROLES, SELECTED, WALLED
from tests.integration.operator_process import Operator, install
from tests.integration.operator_space import Space, batch_inference, deployment
from tests.integration.proxy import Door, Proxy
from tests.integration.waiting import PATIENCE

pytestmark = pytest.mark.more

RBAC = "/apis/rbac.authorization.k8s.io/v1"
Rule = dict[str, Any]
Cause = Callable[[], Awaitable[None]]
Named = tuple[str, str, str]
"""API group, resource, verb."""

LEASES, CONFIG_MAPS, SECRETS = "coordination.k8s.io/leases", "/configmaps", "/secrets"
OF_NAMESPACES = "authorization.k8s.io/localsubjectaccessreviews"
AT_START = {"cluster": (LEASES, SECRETS), "namespaced": (LEASES, CONFIG_MAPS, SECRETS)}
"""What each mode's role in the operator's own namespace is about, in the order in which a start needs it."""


@dataclass
class Lacking:
    """An operator, and the roles that it works with."""

    mode: str
    operator: Operator
    space: Space
    door: Door
    of_models: str
    """Path of the role for the namespaces with models,"""
    own: str
    """and of that for the operator's own."""
    roles: dict[str, Object]
    """Path -> as the chart has it."""

    def rules(self) -> list[tuple[str, Rule]]:
        return [(path, rule) for path, role in self.roles.items() for rule in role["rules"]]

    def put(self, path: str, *without: Rule) -> None:
        """The role with all of its rules but these."""
        body = copy.deepcopy(self.roles[path])
        body["rules"] = [rule for rule in body["rules"] if rule not in without]
        answer = self.space.api.call("PUT", path, body)
        assert answer.status == 200, answer

    @contextmanager
    def without(self, path: str, *rules: Rule) -> Iterator[None]:
        self.put(path, *rules)
        try:
            yield
        finally:
            self.put(path)

    def missing(self) -> set[Named]:
        """As /metrics tells it."""
        permissions = set()
        for name in self.operator.metrics():
            if name.startswith("halcyon_permissions_missing{"):
                labels = dict(part.split("=", 1) for part in name[name.index("{") + 1 : -1].split(","))
                permissions.add(tuple(labels[label].strip('"') for label in ("group", "resource", "verb")))
        return permissions  # type: ignore[return-value]  # of three

    def logged(self) -> set[Named]:
        """Return every permission that the log has named as missing."""
        lines = self.operator.logged(
            "a permission is missing: add the rules of the chart's role to the operator's role"
        )
        return {(line["group"], line["resource"], line["verb"]) for line in lines}

    def account(self, rule: Rule) -> str:
        """What a person needs who asks why: what lacks, what was last asked of the API server about it, and the log about that."""
        plurals = {name.partition("/")[0] for name in rule["resources"]}
        answered = [(r, status) for r, status in self.door.answered if r.resource in plurals]
        lines = [
            f"missing: {sorted(self.missing())}",
            f"open watches: {sorted(r for r, _ in self.door.streams if r in plurals)}",
        ]
        lines += [
            f"{time.monotonic() - r.at:6.1f} s ago: {r.method} {r.path}{' (watch)' if r.watching else ''} -> {status}"
            for r, status in answered[-12:]
        ]
        unanswered = [
            r for r in self.door.seen if r.resource in plurals and not any(r is known for known, _ in answered)
        ]
        lines += [f"{time.monotonic() - r.at:6.1f} s ago: {r.method} {r.path}: no answer" for r in unanswered]
        about = [line for line in self.operator.log.read_text().splitlines() if any(word in line for word in plurals)]
        return "\n".join([*lines, *about[-12:], "the log's end:", self.operator.tail()])


def held(rule: Rule) -> set[Named]:
    return {(g, r, v) for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}


def resources(rule: Rule) -> set[str]:
    return {f"{group}/{resource}" for group in rule["apiGroups"] for resource in rule["resources"]}


@pytest.fixture(params=sorted(AT_START))
def lacking(request: pytest.FixtureRequest, cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Lacking]:
    """Not started."""
    system = install(cluster)
    kubectl = Kubectl(programs=cluster.bin, kubeconfig=cluster.kubeconfig)
    try:
        watched = [namespace] if request.param == "namespaced" else []
        values: Values = OPTIONAL | ({"watchNamespaces": watched} if watched else {})
        kubectl.apply(*(o for o in render(values, namespace=system) if o["kind"] in ROLES))
        space = Space(cluster.api, namespace)
        of_models = f"namespaces/{namespace}/roles/halcyon-models" if watched else "clusterroles/halcyon"
        paths = [f"{RBAC}/{of_models}", f"{RBAC}/namespaces/{system}/roles/halcyon"]
        roles = {path: _as_it_is(space, path) for path in paths}
        with Proxy(cluster.api.identity) as proxy:
            door = proxy.open(account=f"{system}:halcyon")
            more = (f"--network-policies={WALLED}",)
            operator = Operator(system, "op-0", door.kubeconfig, tmp_path, watch=",".join(watched), more=more)
            try:
                yield Lacking(request.param, operator, space, door, paths[0], paths[1], roles)
            finally:
                operator.stop()
    finally:
        kubectl("delete", "clusterrole,clusterrolebinding,apiservice", SELECTED)
        kubectl("delete", "rolebinding", SELECTED, "--namespace=kube-system")
        cluster.api.call("DELETE", f"/api/v1/namespaces/{system}")


def _as_it_is(space: Space, path: str) -> Object:
    role = space.api.call("GET", path).body
    assert role is not None
    # A write is to be of whatever version.
    del role["metadata"]["resourceVersion"]
    return role


async def _lacks(lacking: Lacking, rule: Rule, cause: Cause, limit_s: float = 20.0) -> None:
    """Until a right of this rule is told to be missing, in /metrics and in the log."""
    end = time.monotonic() + limit_s * PATIENCE
    caused = float("-inf")
    while not held(rule) & lacking.missing():
        if time.monotonic() >= end:
            pytest.fail(f"nothing of {rule} is told to be missing:\n{lacking.account(rule)}", pytrace=False)
        # The API server's authorizer hears of a role a moment later: what was asked before that was granted.
        if time.monotonic() - caused >= 1:
            await cause()
            caused = time.monotonic()
        await asyncio.sleep(0.05)
    assert held(rule) & lacking.logged()


async def _has(lacking: Lacking, rule: Rule, again: Cause, limit_s: float = 20.0) -> None:
    """Until none is; `again` makes the operator ask for what it asks seldom."""
    end = time.monotonic() + limit_s * PATIENCE
    while held(rule) & lacking.missing():
        if time.monotonic() >= end:
            pytest.fail(f"{rule} is back, and yet told to be missing:\n{lacking.account(rule)}", pytrace=False)
        await again()
        await asyncio.sleep(0.1)


async def test_each_rule_of_the_roles_is_needed_and_named_while_missing(lacking: Lacking) -> None:
    began = time.monotonic()
    seen: list[Rule] = []
    await _starts_without(lacking, seen)
    await _works_without(lacking, seen)

    # Its other rules are those of the cluster's role, by tests/integration/chart/test_rights.py.
    shared = {lacking.of_models} if lacking.mode == "namespaced" else set()
    left = [rule for path, rule in lacking.rules() if rule not in seen and path not in shared]
    assert left == [], "no part of this test makes the operator need these: add one, or take them out of the chart"
    assert lacking.missing() == set()
    lacking.space.wait_settled()
    assert lacking.operator.stop() == 0
    figures.record(f"rights_{lacking.mode}_rules", len(seen))
    figures.record(f"rights_{lacking.mode}_s", time.monotonic() - began)


async def _nothing() -> None:
    """It asks by itself."""


async def _starts_without(lacking: Lacking, seen: list[Rule]) -> None:
    operator = lacking.operator
    required, rules = AT_START[lacking.mode], lacking.roles[lacking.own]["rules"]
    away = [rule for resource in required for rule in rules if resources(rule) == {resource}]
    assert len(away) == len(required) == len(rules)
    looked = [rule for rule in lacking.roles[lacking.of_models]["rules"] if "apiservices" in rule["resources"]]
    with lacking.without(lacking.own, *away), lacking.without(lacking.of_models, *looked):
        operator.start()
        while away:
            rule, *away = away
            await _lacks(lacking, rule, _nothing)
            assert not operator.fetch("/readyz")
            lacking.put(lacking.own, *away)
            await _has(lacking, rule, _nothing)
            seen.append(rule)
        operator.wait_ready()
        for rule in looked:
            await _lacks(lacking, rule, _nothing)
    # Asked again after half a minute: seen to be back at the end.
    seen += looked


async def _works_without(lacking: Lacking, seen: list[Rule]) -> None:
    """All other rules, while a model is served by two pods."""
    lacking.space.serve(replicas=2)
    causes = Causes(lacking)
    path = lacking.of_models
    for rule in lacking.roles[path]["rules"]:
        if rule in seen or (lacking.mode == "namespaced" and OF_NAMESPACES not in resources(rule)):
            continue
        cause = causes.of(rule)
        with lacking.without(path, rule):
            # A dead backend is replaced only after two restarts, which take 20 s each if no kubelet does them.
            await _lacks(lacking, rule, cause, limit_s=90 if cause == causes.dead_pods else 20)
        await _has(lacking, rule, cause if cause in causes.requested_once else _nothing)
        seen.append(rule)
    # The one that was back before all these.
    for rule in seen:
        await _has(lacking, rule, _nothing, limit_s=40)


class Causes:
    """Causes for an immediate request that the operator otherwise sends seldom."""

    def __init__(self, lacking: Lacking) -> None:
        self._lacking, self._space = lacking, lacking.space
        self.requested_once = {self.grants, self.events, self.agents, self.callers, self.dead_pods}
        """Causes without which the operator repeats the request late, or never."""
        self._number = itertools.count()

    def of(self, rule: Rule) -> Cause:
        ways = {
            "serving.halcyon.dev/modeldeployments/status": self.status,
            "serving.halcyon.dev/batchinferences/status": self.batch_status,
            "discovery.k8s.io/endpointslices": self.grants,
            "events.k8s.io/events": self.events,
            "authentication.k8s.io/tokenreviews": self.agents,
            "authorization.k8s.io/subjectaccessreviews": self.callers,
            OF_NAMESPACES: self.callers,
            "/pods/eviction": self.dead_pods,
        }
        if rule["resources"] == ["pods"] and rule["verbs"] == ["patch"]:
            return self.dead_pods
        return next((way for resource, way in ways.items() if resource in resources(rule)), self._watches(rule))

    def _watches(self, rule: Rule) -> Cause:
        async def drop() -> None:
            self._lacking.door.drop_streams(*rule["resources"])

        return drop

    async def status(self) -> None:
        self._space.apply(deployment(replicas=5 - self._space.replicas()))

    async def batch_status(self) -> None:
        self._space.apply(batch_inference(maxFailures=next(self._number)))

    async def grants(self) -> None:
        # The agent's Role is made anew, of rights that its maker must hold.
        if self._space.get(kinds.ROLE, "m-balancer") is not None:
            self._space.delete(kinds.ROLE, "m-balancer")
        touched = {"metadata": {"annotations": {"touched": str(time.time())}}}
        self._space.merge(kinds.MODEL_DEPLOYMENT, "m", touched)

    async def events(self) -> None:
        refused = {"service": {"annotations": {f"example.com/n{next(self._number)}": "x"}}}
        self._space.apply(deployment(replicas=2, traffic=refused))
        self._space.wait_condition("Accepted", "False", "Invalid")
        self._space.apply(deployment(replicas=2))
        self._space.wait_condition("Accepted", "True")

    async def agents(self) -> None:
        await _send_report(self._lacking, dead="")

    async def callers(self) -> None:
        metrics_response(self._lacking.operator, self._space, token(self._space, "default"))

    async def dead_pods(self) -> None:
        await _send_report(self._lacking, dead=servers(self._space)[0])


async def _send_report(lacking: Lacking, *, dead: str) -> None:
    """An agent's word: all is well, but for the backend of one pod. Whether it is heard is another matter."""
    space = lacking.space
    report = json.loads(record(space))
    for pod in report["pods"]:
        pod["state"] = "maintenance" if pod["name"] == dead else "ready"
    with contextlib.suppress(aiohttp.WSServerHandshakeError):
        async with Agent(lacking.operator, space, token(space, "m-balancer", AUDIENCE)) as stream:
            await stream.send_str(json.dumps(report))
