"""A config.pbtxt in a ConfigMap: errors are found before a pod starts, and the last accepted spec stays in force."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from halcyon.api.conditions import Reason, Type
from halcyon.control.desired.plan import make
from halcyon.control.state.scope import Scope, SourceState
from halcyon.control.status import status
from halcyon.model_config import spec_check
from halcyon.render.revision import Content
from tests.unit.control.scope_builders import applied_children, scope_of

SOURCE = {"configMap": {"name": "m", "items": [{"key": "config", "path": "config.pbtxt"}]}}
GOOD = 'name: "digits"\nbackend: "python"\nmax_batch_size: 8\n'


def of_config_map(text: str | bytes, *, is_binary: bool = False, **spec: Any) -> Scope:
    data = text if isinstance(text, bytes) else text.encode()
    content = (
        Content(data={}, binary={"config": base64.b64encode(data).decode()})
        if is_binary
        else Content(data={"config": data.decode()}, binary={})
    )
    model = {"source": SOURCE} | spec.pop("model", {})
    return scope_of({"model": model} | spec, source=SourceState(content=content))


@pytest.mark.parametrize(
    ("text", "spec", "message"),
    [
        ('name: "digits\n', {}, "line 1, column 7"),
        ("max_batch_size: eight\n", {}, "Couldn't parse integer: eight; expected a whole number"),
        ("max_batch_sise: 8\n", {"batching": {"maxQueueDelay": "1ms"}}, "did you mean max_batch_size?"),
        ('name: "other"\nbrand_new_field: 1\n', {}, "name the model digits in the file"),
        ("backend: 'python'\n", {"batching": {"maxQueueDelay": "1ms"}}, "spec.batching needs a maximum batch size: max_batch_size is 0"),
        (GOOD, {"batching": {"preferredBatchSizes": [16]}}, "preferred_batch_size 16 is above max_batch_size 8"),
        (GOOD, {"model": {"backend": "onnxruntime"}}, 'spec.model.backend is onnxruntime, but config.pbtxt sets backend: "python"'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_binary", [False, True])
def test_errors_of_a_configuration_keep_the_spec_from_being_accepted(
    text: str, spec: dict[str, Any], message: str, *, is_binary: bool
) -> None:
    planned = make(of_config_map(text, is_binary=is_binary, **spec))

    assert (planned.acceptance.accepted, planned.acceptance.reason) == (False, Reason.MODEL_CONFIG_INVALID)
    assert planned.acceptance.message.startswith("ConfigMap team/m, key config: ")
    assert message in planned.acceptance.message
    assert (planned.first, planned.then) == ((), ())


VERSIONS = {"configMap": {"name": "m", "items": [*SOURCE["configMap"]["items"], {"key": "code", "path": "1/model.py"}]}}


@pytest.mark.parametrize(
    ("policy", "spec", "message"),
    [
        ("", {}, ""),
        ("version_policy { specific { versions: [1, 3] } }", {}, ""),
        ("version_policy { specific { versions: [3] } }", {"versions": {"latest": 1}}, ""),
        ("version_policy { specific { versions: [3] } }", {}, "config.pbtxt of digits has only 3, and the source has the version folders 1"),
        ("", {"versions": {"specific": [1, 2]}}, "spec.model.versions.specific has 2, but the source has no such version folder; it has 1"),
    ],
)  # fmt: skip
def test_versions_without_a_folder_in_the_config_map_are_refused(
    policy: str, spec: dict[str, Any], message: str
) -> None:
    acceptance = make(of_config_map(GOOD + policy, model=spec | {"source": VERSIONS})).acceptance

    assert acceptance.accepted is not bool(message)
    assert message in acceptance.message


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        (GOOD, {}),
        ("﻿" + GOOD, {}),
        (GOOD, {"batching": {"maxQueueDelay": "1ms"}}),
        ("backend: 'python'\n", {"batching": {"maxBatchSize": 8}}),
        ('name: "other"\nbackend: "python"\n', {}),  # the merge replaces the name
        ('name: "digits"\nbrand_new_field: 1\n', {}),  # a newer Triton may have the field, and nothing is merged
    ],
)
def test_configurations_that_the_fetcher_accepts_are_accepted(text: str, spec: dict[str, Any]) -> None:
    assert make(of_config_map(text, **spec)).acceptance.accepted


def test_a_wrong_change_of_the_config_map_keeps_the_servers_of_before() -> None:
    first = of_config_map(GOOD)
    before = make(first)
    assert before.target is not None
    broken = replace(
        first,
        children=applied_children(first, before),
        revisions=(before.target,),
        source=SourceState(content=Content(data={"config": "max_batch_size: x"}, binary={})),
    )

    planned = make(broken)

    assert not planned.acceptance.accepted
    assert planned.target is not None
    assert planned.target.key == before.target.key
    written = status.make(broken, planned, now="2026-01-01T00:00:00Z")
    (accepted,) = (condition for condition in written["conditions"] if condition["type"] == Type.ACCEPTED)
    assert (accepted["status"], accepted["reason"]) == ("False", Reason.MODEL_CONFIG_INVALID)


def test_a_large_configuration_is_left_to_the_fetcher() -> None:
    text = "# " + "x" * spec_check.MAX_BYTES + "\nmax_batch_size: eight\n"

    assert make(of_config_map(text)).acceptance.accepted


PATHS = ("digits/config.pbtxt", "pre/config.pbtxt", "pre/1/model.py")


def of_repository(*texts: str, paths: tuple[str, ...] = PATHS, name: str | None = None) -> Scope:
    """A ConfigMap with these files, each with its index as the key."""
    items = [{"key": str(number), "path": path} for number, path in enumerate(paths)]
    source = {"configMap": {"name": "m", "items": items}}
    content = Content(data={str(number): text for number, text in enumerate(texts)}, binary={})
    model = {"source": source} | ({"name": name} if name else {})
    return scope_of({"model": model}, source=SourceState(content=content))


def ensemble(step: str) -> str:
    return f'platform: "ensemble" ensemble_scheduling {{ step [ {{ model_name: "{step}" }} ] }}'


def test_a_repository_in_a_config_map_is_accepted() -> None:
    assert make(of_repository(ensemble("pre"), GOOD.replace("digits", "pre"), "")).acceptance.accepted
    assert make(of_repository(ensemble("pre"), GOOD.replace("digits", "pre"), "", name="digits")).acceptance.accepted
    # The fetcher reports a repository without the served model, with the folders of the source.
    assert make(of_repository(ensemble("gone"), "", "", name="other")).acceptance.accepted


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ((ensemble("main"), "", ""), "digits is an ensemble with the step 'main', and the source has no model folder"),
        ((ensemble("pre"), "max_batch_size: x", ""), "model pre of the source: config.pbtxt, line 1, column 17"),
        ((ensemble("pre"), 'name: "other"', ""), "model pre of the source: config.pbtxt has name: 'other'"),
        (("max_batch_size: x", "", ""), "ConfigMap team/m, key 0: config.pbtxt, line 1"),
    ],
)
def test_errors_of_a_repository_in_a_config_map_are_found(texts: tuple[str, ...], message: str) -> None:
    acceptance = make(of_repository(*texts)).acceptance

    assert (acceptance.accepted, acceptance.reason) == (False, Reason.MODEL_CONFIG_INVALID)
    assert message in acceptance.message
    assert acceptance.message.startswith("ConfigMap team/m")


@pytest.mark.parametrize("paths", [("config.pbtxt",), ("any/config.pbtxt",)])
def test_an_ensemble_alone_in_a_config_map_misses_its_steps(paths: tuple[str, ...]) -> None:
    message = make(of_repository(ensemble("pre"), paths=paths)).acceptance.message

    assert "digits is an ensemble with the step 'pre'" in message
    assert "it has digits. " in message
