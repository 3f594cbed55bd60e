"""Fields that another manager owns, handed over to the applies of one manager."""

from __future__ import annotations

import copy
from typing import Any

from halcyon.kube.field_ownership import with_all_fields, with_sole_owner

TEMPLATE = ("spec", "template")


def entry(manager: str, fields: dict[str, Any], operation: str = "Update", **others: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsV1": fields, **others}


def template(*names: str, **more: Any) -> dict[str, Any]:
    env: dict[str, Any] = {f'k:{{"name":"{name}"}}': {".": {}, "f:name": {}, "f:value": {}} for name in names}
    return {"f:spec": {"f:template": {"f:spec": {"f:env": env}}, **more}}


def test_the_fields_of_others_below_the_path_belong_to_the_applies() -> None:
    entries = [
        entry("halcyon", template("A"), "Apply"),
        entry("kubectl", {**template("B"), "f:metadata": {"f:annotations": {"f:mine": {}}}}),
        entry("kubectl-edit", template("C")),
    ]
    before = copy.deepcopy(entries)
    assert with_sole_owner(entries, "halcyon", TEMPLATE) == [
        entry("halcyon", template("A", "B", "C"), "Apply"),
        entry("kubectl", {"f:metadata": {"f:annotations": {"f:mine": {}}}}),
    ]
    assert entries == before


def test_fields_beside_the_path_stay_with_their_owner() -> None:
    scaler = entry("autoscaler", template(**{"f:replicas": {}}))
    scaler["fieldsV1"]["f:spec"].pop("f:template")
    status = entry("kube-controller-manager", {"f:status": {"f:replicas": {}}}, subresource="status")
    entries = with_sole_owner(
        [entry("halcyon", template("A"), "Apply"), entry("kubectl", template("B")), scaler, status], "halcyon", TEMPLATE
    )
    assert entries is not None
    assert entries[1:] == [scaler, status]


def test_fields_without_an_apply_or_another_owner_stay() -> None:
    assert with_sole_owner([entry("halcyon", template("A"), "Apply")], "halcyon", TEMPLATE) is None
    assert (
        with_sole_owner([entry("halcyon", template("A")), entry("kubectl", template("B"))], "halcyon", TEMPLATE) is None
    )
    assert with_sole_owner([], "halcyon", TEMPLATE) is None
    status = entry("halcyon", {"f:status": {}}, "Apply", subresource="status")
    assert with_sole_owner([status, entry("kubectl", template("B"))], "halcyon", TEMPLATE) is None


def test_fields_of_all_managers_belong_to_the_applies_except_kept_ones() -> None:
    metadata = {"f:labels": {"f:a": {}}, "f:finalizers": {".": {}, 'v:"x"': {}}}
    restored = entry("velero", {"f:metadata": metadata, **template("A", "B"), "f:status": {"f:replicas": {}}})
    status = entry("kube-controller-manager", {"f:status": {"f:replicas": {}}}, subresource="status")
    older = entry("kubectl", {"f:spec": {"f:x": {}}}) | {"apiVersion": "apps/v1beta1"}
    applied = {
        "manager": "halcyon",
        "operation": "Apply",
        "apiVersion": "apps/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}, **template("A", "B")},
    }
    kept = {"f:status": {"f:replicas": {}}, "f:metadata": {"f:finalizers": {".": {}, 'v:"x"': {}}}}
    paths = (("status",), ("metadata", "finalizers"), ("metadata", "ownerReferences"))

    entries = with_all_fields([restored, status, older], "halcyon", "apps/v1", kept=paths)
    assert entries == [entry("velero", kept), status, older, applied]


def test_a_field_below_kept_ones_stays_with_its_manager_alone() -> None:
    annotations = {"f:template": {"f:metadata": {"f:annotations": {".": {}, "f:at": {}, "f:theirs": {}}}}}
    ours, theirs = entry("halcyon", template("A"), "Apply"), entry("kubectl-rollout", {"f:spec": annotations})
    path = ("spec", "template", "metadata", "annotations", "at")
    entries = with_all_fields([ours, theirs], "halcyon", "apps/v1", kept=[path])

    assert entries[1]["fieldsV1"] == {"f:spec": {"f:template": {"f:metadata": {"f:annotations": {"f:at": {}}}}}}
    owned = entries[0]["fieldsV1"]["f:spec"]["f:template"]
    assert owned["f:metadata"]["f:annotations"] == {".": {}, "f:theirs": {}}
    assert owned["f:spec"] == template("A")["f:spec"]["f:template"]["f:spec"]


def test_an_object_whose_fields_no_manager_owns_stays_without() -> None:
    assert with_all_fields([], "halcyon", "apps/v1", kept=[]) == []
