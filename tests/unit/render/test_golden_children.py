"""All children of a minimal ModelDeployment, of a full one and of two without balancers, as files: a change of what is rendered is seen in review.

HALCYON_UPDATE_GOLDEN=1 writes the files anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from generators import resource_example
from halcyon.api.schema import structural_schema
from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from tests.unit.render.rendered import children
from tests.yaml_text import loaded

GOLDEN = Path(__file__).parents[2] / "golden"


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # the signature is PyYAML's
        return True


RESOURCES = {
    "minimal": """\
metadata: {name: digits}
spec:
  model:
    source:
      persistentVolumeClaim: {claimName: models}
""",
    "full": resource_example.EXAMPLE,
    "service": """\
metadata: {name: digits}
spec:
  model:
    source:
      persistentVolumeClaim: {claimName: models}
  traffic: {mode: Direct}
""",
    "gateway": """\
metadata: {name: digits}
spec:
  model:
    source:
      persistentVolumeClaim: {claimName: models}
  traffic:
    mode: Gateway
    queueTimeout: 1m30s
    responseTimeout: 1m30s
    gateway: {name: edge, namespace: infra, http: {hostnames: [a.example.com]}, grpc: {hostnames: [b.example.com]}}
""",
}


_INSIDE_OTHERS = ("spec.model.source.uri.", "spec.model.source.credentials.")
"""Prefixes of alternatives inside of other alternatives."""


def _fields(schema: dict[str, Any], value: Any, path: str) -> Iterator[tuple[str, bool]]:
    """Every field that the schema has where the value has its parent, and whether it is set."""
    if schema["type"] == "array":
        for item in value:
            yield from _fields(schema["items"], item, path)
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", name in value
        if name in value:
            yield from _fields(field, value[name], f"{path}.{name}")


def test_the_full_resource_sets_every_compatible_field() -> None:
    resource = loaded(resource_example.EXAMPLE)
    fields = list(_fields(structural_schema.schema(Spec), resource["spec"], "spec"))
    unset = {path for path, _ in fields} - {path for path, is_set in fields if is_set}

    # Of an alternative the example doesn't have, no field is looked at.
    assert unset == {path for path in resource_example.ALTERNATIVES if not path.startswith(_INSIDE_OTHERS)}


@pytest.mark.parametrize("name", sorted(RESOURCES))
def test_the_children_are_those_of_the_golden_file(name: str) -> None:
    resource = loaded(RESOURCES[name])
    spec = parse(resource["metadata"]["name"], resource["spec"])
    rendered = yaml.dump_all(children(spec), Dumper=_Plain, sort_keys=False, width=120)
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("HALCYON_UPDATE_GOLDEN"):
        file.write_text(rendered)

    assert rendered == file.read_text(), "HALCYON_UPDATE_GOLDEN=1 writes the file anew; look at the difference"
