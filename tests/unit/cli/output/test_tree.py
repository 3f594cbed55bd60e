"""What `halcyon get` shows: whole pages as golden files, and what must hold for any objects."""

from __future__ import annotations

import copy
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon_cli.diagnose.facts import Facts
from halcyon_cli.diagnose.registry import causes
from halcyon_cli.kube.inventory import Inventory
from halcyon_cli.kube.pod_stage import stage
from halcyon_cli.output import model_rows, tables
from halcyon_cli.output.tree import Node, build_tree
from tests.unit.cli.explain.test_report import GOLDEN, JSON, compared
from tests.unit.cli.explained_models import SCALED, SITUATIONS
from tests.unit.cli.inventories import NOW, SCENES, inventory
from tests.unit.control.rollout.deployment_simulation import Cluster, served

AT = datetime.fromtimestamp(NOW, UTC)


def page(seen: Inventory, *, width: int = 160, color: bool = False) -> str:
    return tables.lines(tables.tree_page(build_tree(seen), AT, width=width), width=width, color=color)


def nodes(root: Node) -> list[Node]:
    return [root, *(node for child in root.children for node in nodes(child))]


@pytest.mark.parametrize("name", SCENES)
def test_a_tree_is_that_of_the_golden_file(name: str) -> None:
    compared(GOLDEN / f"{name}.txt", page(SCENES[name]()) + "\n")


def test_a_tree_of_80_columns_keeps_its_lines_whole() -> None:
    shown = page(SCENES["tree-canary"](), width=80) + "\n"

    compared(GOLDEN / "tree-narrow.txt", shown)
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_the_json_has_every_line_of_the_tree() -> None:
    shown = build_tree(SCENES["tree-canary"]())
    plain = json.loads(json.dumps(shown.to_dict()))

    assert plain["facts"]["Name"] == "team/digits"
    kinds = [child["kind"] for child in plain["tree"]["children"]]
    assert kinds == ["Revision", "Revision", "Balancer"]
    assert [child["state"] for child in plain["tree"]["children"][:2]] == ["canary", "serving"]


def test_an_hpa_that_never_computed_its_replicas_shows_no_desired_ones() -> None:
    inventory = SCENES["tree-steady"]()
    inventory.hpas[0]["status"] = {"desiredReplicas": 0, "currentReplicas": 2, "conditions": []}
    line = next(line for line in page(inventory).splitlines() if line.startswith("└── digits ") and "HPA" in line)
    assert "desired" not in line


@pytest.mark.parametrize(
    ("scaling", "accepted", "summary"),
    [
        ({"minReplicas": 2, "maxReplicas": 8}, "True", "1/2 ready, 2 to 8 replicas allowed, 3 desired"),
        ({"minReplicas": 2, "maxReplicas": 8}, "False", "1/1 ready, 2 to 8 replicas allowed, 3 desired"),
        (None, "True", "1/1 ready, 3 desired"),
    ],
)
def test_replicas_of_the_model_are_those_in_force(scaling: dict[str, Any] | None, accepted: str, summary: str) -> None:
    model: dict[str, Any] = {"metadata": {"name": "digits"}, "spec": {"replicas": 1, "scaling": scaling}}
    conditions = [{"type": "Accepted", "status": accepted}]
    model["status"] = {"readyReplicas": 1, "conditions": conditions, "scaling": {"desired": 3}}
    assert build_tree(Inventory(model)).root.info == summary


def test_replicas_of_an_unprocessed_model_are_those_in_force() -> None:
    model = {"metadata": {"name": "digits"}, "spec": {"replicas": 1, "scaling": {"minReplicas": 2, "maxReplicas": 8}}}
    assert model_rows.build_row(model).replicas == "?/2"


@pytest.mark.parametrize(
    ("low", "state", "tone"),
    [(None, "NoServersReady", "bad"), (1, "NoServersReady", "bad"), (0, "Progressing", "busy")],
)
def test_an_outage_of_a_served_model_is_bad_and_not_busy(low: int | None, state: str, tone: str) -> None:
    cluster = served(room=2, count=2)
    if low is not None:
        cluster.spec["scaling"] = {**SCALED, "minReplicas": low}
    for server in cluster.servers:
        server.ready = False
    root = build_tree(inventory(cluster)).root
    assert (root.state, root.tone) == (state, tone)


def test_a_model_that_was_never_served_is_busy_while_it_starts() -> None:
    root = build_tree(inventory(Cluster({**served(room=1, count=1).spec}, 1))).root
    assert (root.state, root.tone) == ("Progressing", "busy")


def test_colour_changes_no_letter() -> None:
    coloured = page(SCENES["tree-stages"](), color=True)

    assert "\x1b[31m" in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in plain.splitlines()] == page(SCENES["tree-stages"]()).splitlines()


@pytest.mark.parametrize("width", [60, 100, 240])
def test_names_are_never_broken(width: int) -> None:
    seen = SCENES["tree-stages"]()
    shown = page(seen, width=width)

    assert all(str(pod["metadata"]["name"]) in shown for pod in seen.pods)


def test_every_pod_is_in_the_tree_once() -> None:
    for make in SCENES.values():
        seen = make()
        shown = [node.name for node in nodes(build_tree(seen).root) if node.kind == "Pod"]
        assert sorted(shown) == sorted(pod["metadata"]["name"] for pod in seen.pods)


@given(data=st.data())
def test_objects_of_another_form_are_shown_as_far_as_they_are_readable(data: st.DataObject) -> None:
    seen = copy.deepcopy(_STAGES)
    place: Any = data.draw(st.sampled_from([*seen.pods, *seen.deployments, *seen.revisions, seen.model]))
    path: Any = data.draw(st.sampled_from(sorted(place)))
    while isinstance(place[path], dict | list) and place[path] and data.draw(st.booleans()):
        place = place[path]
        path = data.draw(st.sampled_from(sorted(place))) if isinstance(place, dict) else len(place) - 1
    place[path] = data.draw(JSON)

    shown = build_tree(seen)
    assert json.loads(json.dumps(shown.to_dict()))["tree"]["kind"] == shown.root.kind == "ModelDeployment"
    assert causes(Facts(seen, AT))


_STAGES = SCENES["tree-stages"]()


def test_a_pod_of_which_nothing_is_known_is_pending() -> None:
    assert stage({}).state == "pending"


def test_the_list_has_the_columns_of_kubectl() -> None:
    models = [SITUATIONS[name]().resource() for name in ("rising", "fixed", "paused", "undecided")]
    for model in models:
        model["status"]["summary"]["state"] = "Ready"
    rows = [model_rows.build_row(model) for model in models]
    head, cells = model_rows.list_table(rows, AT, wide=True, all_namespaces=True)

    compared(GOLDEN / "list-wide.txt", tables.lines(tables.table_page(head, cells), width=300) + "\n")


def test_the_list_and_top_are_those_of_the_golden_files() -> None:
    models = []
    for name, situation in (("bert", "rising"), ("digits", "fixed"), ("whisper", "paused")):
        model = SITUATIONS[situation]().resource()
        model["metadata"] |= {"name": name, "creationTimestamp": "2025-12-24T08:00:00Z"}
        model["status"]["address"]["url"] = f"http://{name}.team.svc:8000"
        models.append(model)
    rows = [model_rows.build_row(model) for model in models]
    head, cells = model_rows.list_table(rows, AT, wide=False, all_namespaces=False)
    top = model_rows.top_table(rows, price=2.5, wide=False, all_namespaces=False)

    compared(GOLDEN / "list.txt", tables.lines(tables.table_page(head, cells), width=300) + "\n")
    compared(GOLDEN / "top.txt", tables.lines(tables.table_page(*top), width=300) + "\n")


def test_models_are_in_the_order_asked_for_and_the_unknown_comes_last() -> None:
    rows = []
    for n, (waiting, gpu) in enumerate([("4", "80%"), (None, None), ("121", "7%")]):
        resource = SITUATIONS["rising"]().resource()
        resource["metadata"]["name"] = f"m{n}"
        resource["status"]["scaling"].pop("signals")
        resource["status"]["summary"] |= {"queue": waiting, "gpu": gpu}
        rows.append(model_rows.build_row(resource))

    assert [row.name for row in model_rows.sorted_rows(rows, "queue")] == ["m2", "m0", "m1"]
    assert [row.name for row in model_rows.sorted_rows(rows, "gpu")] == ["m0", "m2", "m1"]
    assert [row.name for row in model_rows.sorted_rows(rows, "name")] == ["m0", "m1", "m2"]


def test_queue_of_all_models_is_the_sum_of_the_column() -> None:
    resources = [SITUATIONS["rising"]().resource() for _ in range(2)]
    for resource, queue in zip(resources, ("20/64", "3/64"), strict=True):
        # Rules: the signal has the requests that were rejected, too.
        resource["status"]["scaling"]["signals"] = [{"name": "queueDepth", "value": "110", "target": "64"}]
        resource["status"]["summary"]["queue"] = queue
    rows = [model_rows.build_row(resource) for resource in resources]
    head, cells = model_rows.top_table(rows, price=None, wide=False, all_namespaces=False)

    assert [line[head.index("QUEUE")] for line in cells] == ["20/64", "3/64", "23"]
