"""Generator of each chart's values.schema.json, and of the values table in its README.md, from values.yaml.

Usage: `python generators/chart_values.py DIRECTORY`. In the comments above a value, `# --` starts its description,
which becomes a row of the table. `# @schema` specifies its type:

    a word                a type in TYPES below, or a Kubernetes type (`Affinity`)
    [a word]              a list of this type
    sitePolicy.a.b        the limit with this path in halcyon.api.policy.site_policy
    a mapping             JSON schema; `items` and `properties` may contain words

Booleans and sections need no `# @schema`. Every section is closed: names that aren't in values.yaml are rejected. The
templates are not read.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from halcyon.api.policy.site_policy import SitePolicy

Schema = dict[str, Any]

CHARTS = Path(__file__).resolve().parents[1] / "charts"
NEWEST = "v1.36.0-local"
"""Kubernetes version whose types are used. Fields from newer versions are rejected."""
BEGIN, END = "<!-- values: written by scripts/generate -->\n", "<!-- values end -->\n"

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_REPOSITORY = "[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
_TAG = "[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_HOST = "(\\[[0-9a-fA-F:.]+\\]|[^:/@?#\\s\\[\\]]+)"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_NETWORK = (
    f"^({_BYTE}(\\.{_BYTE}){{3}}/([12]?[0-9]|3[0-2])|[0-9a-fA-F]*:[0-9a-fA-F.:]*/([1-9]?[0-9]|1[01][0-9]|12[0-8]))$"
)
_LABEL_KEY = "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_LABEL_VALUE = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"


def _text(pattern: str, most: int, description: str) -> Schema:
    return {"description": description, "type": "string", "maxLength": most, "pattern": pattern}


TYPES: dict[str, Schema] = {
    "IntOrString": {"type": ["integer", "string"]},
    "Quantity": {
        "anyOf": [
            {"type": "number", "minimum": 0},
            {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?$"},
        ]
    },
    "auto": {"description": "auto, true or false.", "enum": ["auto", True, False]},
    "digest": _text("^(sha256:[a-f0-9]{64})?$", 71, "Empty, or sha256: and 64 hexadecimal digits."),
    # The alerts and the arrival history have rates over five minutes, which need two scrapes in any five minutes.
    "interval": _text(
        "^([1-9][0-9]{2,4}ms|([1-9][0-9]?|1[01][0-9]|120)s|[12]m)$", 7, "A duration of at most 2m, for example 30s."
    ),
    "key": _text("^[-._a-zA-Z0-9]+$", 253, "A key of a ConfigMap or Secret, for example ca.crt."),
    "httpProxy": _text(
        f"^(http://([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\\[[0-9a-f:.]+\\]):{_PORT}/?)?$",
        300,
        "Empty, or http, a host and a port, for example http://proxy.example.com:3128.",
    ),
    "labelKey": _text(_LABEL_KEY, 317, "A key of a label or taint, for example nvidia.com/gpu."),
    "labelValue": _text(_LABEL_VALUE, 63, "A value of a label or taint."),
    "labels": {
        "description": "Labels of nodes: quote what looks like a number or a switch.",
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": False,
        "patternProperties": {_LABEL_KEY: {"type": "string", "maxLength": 63, "pattern": _LABEL_VALUE}},
    },
    "network": _text(_NETWORK, 43, "An IPv4 or IPv6 network, for example 10.0.12.0/24 or fd00:12::/64."),
    "namespace": _text(f"^{_LABEL}$", 63, "A namespace, for example team-a."),
    "objectName": _text(f"^{_LABEL}(\\.{_LABEL})*$", 253, "Lower case, digits, - and ., for example registry."),
    "objectNameOrNone": _text(f"^({_LABEL}(\\.{_LABEL})*)?$", 253, "Empty, or lower case, digits, - and ."),
    "port": {
        "description": "Above 1023, because the operator does not run as root.",
        "type": "integer",
        "minimum": 1024,
        "maximum": 65535,
    },
    "probe": {
        "description": "Times of a probe. The chart sets its request.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {"type": "integer", "minimum": 1, "maximum": 3600}
            for name in ("periodSeconds", "timeoutSeconds", "failureThreshold")
        },
        "required": ["periodSeconds", "timeoutSeconds", "failureThreshold"],
    },
    "prometheusUrl": _text(
        f"^(https?://{_HOST}(:{_PORT})?(/[^@?#\\s]*)?)?$",
        1024,
        "Empty, or http or https, a host and at most a path, for example http://prometheus-operated.monitoring:9090.",
    ),
    "registry": _text(
        f"^([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]{{1,5}})?(/{_REPOSITORY})?)?$",
        255,
        "Empty, or a host with an optional port and path, for example registry.example.com:5000/mirror.",
    ),
    "repository": _text(f"^{_REPOSITORY}$", 255, "Without registry, tag and digest, for example ml/halcyon-operator."),
    "repositoryOrNone": _text(f"^({_REPOSITORY})?$", 255, "Empty, or a repository without registry, tag and digest."),
    "tag": _text(f"^{_TAG}$", 128, "A string: quote what looks like a number."),
    "tagOrNone": _text(f"^({_TAG})?$", 128, "Empty, or a tag; quote what looks like a number."),
    "resources": {
        "description": "Requests and limits of the container.",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: {"type": "object", "additionalProperties": "Quantity"} for name in ("limits", "requests")},
    },
    "tracesEndpoint": _text(
        f"^(https?://([^/@?#\\s]*@)?{_HOST}(:{_PORT})?/[^?#\\s]*[^/?#\\s]\\S*)?$",
        1024,
        "Empty, or http or https, a host and a path, for example http://collector.observability.svc:4318/v1/traces.",
    ),
    "texts": {
        "description": "Names and texts: quote what looks like a number or a switch.",
        "type": "object",
        "additionalProperties": {"type": "string"},
    },
}


ENUMS: dict[tuple[str, str], list[str]] = {
    ("Toleration", "effect"): ["NoSchedule", "PreferNoSchedule", "NoExecute"],
    ("Toleration", "operator"): ["Exists", "Equal"],
    ("TopologySpreadConstraint", "whenUnsatisfiable"): ["DoNotSchedule", "ScheduleAnyway"],
}
"""Enumerations that Kubernetes' schema documents only in prose, by type and field."""
PATTERNS: dict[tuple[str, str], str] = {("IPBlock", "cidr"): _NETWORK, ("IPBlock", "except"): _NETWORK}
"""Patterns of texts that Kubernetes checks by code, by type and field. The API server would reject these objects when the
operator applies them, not when the chart is installed."""


class ValuesError(Exception):
    """The comment of a value in values.yaml lacks a description or a type."""


@dataclass
class ChartValue:
    """Entry of values.yaml, with the comment above it."""

    path: str
    default: Any
    text: str = ""
    schema: Any = None
    parts: dict[str, ChartValue] = field(default_factory=dict)
    """Entries of a section. A mapping with its own schema counts as a single value without parts."""


def read(text: str) -> ChartValue:
    """Return the values in a values.yaml, as children of a root without a name."""
    node = yaml.compose(text, yaml.SafeLoader)
    if node is None:
        raise ValuesError("values.yaml is empty")
    return _read(node, text.splitlines(), "")


def _read(node: yaml.Node, lines: list[str], path: str, text: str = "", schema: Any = None) -> ChartValue:
    loader = yaml.SafeLoader("")
    value = ChartValue(path, loader.construct_object(node, deep=True), text, schema)
    if isinstance(node, yaml.MappingNode) and schema is None and node.value:
        for key, part in node.value:
            description, schema_comment = _comment(lines, key.start_mark.line)
            child_path = f"{path}.{key.value}".lstrip(".")
            value.parts[key.value] = _read(part, lines, child_path, description, schema_comment)
    return value


def _comment(lines: list[str], line: int) -> tuple[str, Any]:
    """Return the description (after `# --`) and the schema (after `# @schema`) in the comment directly above a line."""
    above: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        above.insert(0, lines[line].lstrip().removeprefix("#").strip())
    schema = [entry.removeprefix("@schema ") for entry in above if entry.startswith("@schema ")]
    prose = [entry for entry in above if not entry.startswith("@schema ")]
    begins = next((index for index, entry in enumerate(prose) if entry.startswith("--")), len(prose))
    return " ".join(prose[begins:]).removeprefix("--").strip(), yaml.safe_load(schema[0]) if schema else None


def json_schema(root: ChartValue, *, title: str) -> Schema:
    """Return the JSON schema of the values."""
    used: dict[str, Schema] = {}
    schema = _section(root, used)
    schema["properties"]["global"] = {
        "description": "Values that a parent chart passes to all of its charts; this chart uses those that it documents.",
        "type": "object",
        "properties": schema["properties"].get("global", {}).get("properties", {}),
    }
    schema["properties"]["enabled"] = {
        "description": "The condition of a larger chart that has this one as a dependency. The templates do not read it.",
        "type": "boolean",
    }
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return head | schema | {"$defs": dict(sorted(used.items()))}


def _section(value: ChartValue, used: dict[str, Schema]) -> Schema:
    """Return the schema of a section, which allows no other names and requires all names that have a default.

    They are required because in Helm null removes a name, and the templates rely on them.
    """
    parts = {name: _schema(part, used) for name, part in value.parts.items()}
    required = [name for name, part in value.parts.items() if part.default is not None]
    schema = {"type": "object", "additionalProperties": False, "properties": parts, "required": required}
    return schema | ({"description": value.text} if value.text else {})


def _schema(value: ChartValue, used: dict[str, Schema]) -> Schema:
    if value.parts:
        return _section(value, used)
    if value.schema is not None:
        schema = _expanded(value.schema, used)
    elif isinstance(value.default, bool):
        schema = {"type": "boolean"}
    else:
        raise ValuesError(f"values.yaml: {value.path} needs a line that says what it may be, as `# @schema port`")
    return {"description": value.text, **schema} if value.text else schema


def _expanded(declared: Any, used: dict[str, Schema]) -> Schema:
    """Convert a `# @schema` comment to JSON schema, and add the Kubernetes types that it uses to `used`."""
    if isinstance(declared, list):
        return {"type": "array", "maxItems": 100, "items": _expanded(declared[0], used)}
    if isinstance(declared, str):
        if declared not in used:
            used[declared] = {}  # the type may refer to itself
            used[declared] = _named_schema(declared, used)
        return {"$ref": f"#/$defs/{declared}"}
    schema = dict(declared)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), str | dict):
            schema[inner] = _expanded(schema[inner], used)
    if "properties" in schema:
        schema["properties"] = {name: _expanded(part, used) for name, part in schema["properties"].items()}
    return schema


def _named_schema(name: str, used: dict[str, Schema]) -> Schema:
    if name in TYPES:
        return dict(_expanded(TYPES[name], used))
    return _policy_schema(name) if name.startswith("sitePolicy.") else _kubernetes_schema(name, used)


def _policy_schema(name: str) -> Schema:
    """Return the schema of a limit in the operator's model of the site policy, which receives the value in the end."""
    policy_schema = SitePolicy.model_json_schema()
    limit_schema: Any = policy_schema
    for part in name.split(".")[1:]:
        limit_schema = limit_schema["properties"][part]
        limit_schema = (
            policy_schema["$defs"][limit_schema["$ref"].rpartition("/")[2]] if "$ref" in limit_schema else limit_schema
        )
    keywords = {key: value for key, value in limit_schema.items() if key not in {"title", "description", "default"}}
    if options := keywords.pop("anyOf", None):
        limit, _ = options
        keywords = (
            limit | ({"enum": [*limit["enum"], None]} if "enum" in limit else {}) | {"type": [limit["type"], "null"]}
        )
    return keywords | ({"additionalProperties": False} if "patternProperties" in keywords else {})


def _kubernetes_schema(name: str, used: dict[str, Schema]) -> Schema:
    """Return the schema of a Kubernetes API type, without descriptions; it allows no other fields."""
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / NEWEST
    definitions = json.loads((folder / "_definitions.json").read_text())["$defs"]
    full = next((full for full in definitions if re.fullmatch(rf"io\.k8s\.(api|apimachinery)\..*\.{name}", full)), None)
    if full is None:
        raise ValuesError(f"values.yaml: @schema {name} is neither in TYPES nor a type of Kubernetes; good: Toleration")

    def closed(part: Any) -> Any:
        if isinstance(part, list):
            return [closed(item) for item in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return _expanded(part["$ref"].rpartition(".")[2], used)
        keywords = {
            key: {name: closed(below) for name, below in inner.items()} if key == "properties" else closed(inner)
            for key, inner in part.items()
            if key not in {"description", "format", "default"} and not key.startswith("x-kubernetes")
        }
        if isinstance(keywords.get("type"), list):
            keywords["type"] = keywords["type"][0]  # the other alternative is null, which Helm treats as unset
        return keywords | ({"additionalProperties": False} if "properties" in keywords else {})

    schema = dict(closed(definitions[full]))
    _restrict(schema, name)
    return schema


def _restrict(schema: Schema, name: str) -> None:
    """Add what Kubernetes' schema of a type doesn't express."""
    for (type_name, field_name), allowed in ENUMS.items():
        if type_name == name:
            schema["properties"][field_name] = {"enum": allowed}
    for (type_name, field_name), pattern in PATTERNS.items():
        if type_name == name:
            text = schema["properties"][field_name]
            text.get("items", text)["pattern"] = pattern


def table(root: ChartValue) -> str:
    """Return the table rows with the type, default and description of each value."""
    rows = ["| value | default | meaning |", "| --- | --- | --- |"]
    rows += [f"| `{value.path}` | {_default(value.default)} | {_escaped(value.text)} |" for value in _documented(root)]
    return "\n".join(rows) + "\n"


def _documented(value: ChartValue) -> Iterator[ChartValue]:
    for part in value.parts.values():
        if part.text and not part.parts:
            yield part
        elif part.text:
            own = {name: below for name, below in part.parts.items() if below.text}
            yield ChartValue(
                part.path, {name: default for name, default in part.default.items() if name not in own}, part.text
            )
            yield from own.values()
        elif part.parts:
            yield from _documented(part)
        else:
            raise ValuesError(f"values.yaml: {part.path} needs a comment that begins with `# --`: what it means")


def _default(value: Any) -> str:
    if value in ("", None, [], {}):
        return "none"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
    return f"`{_escaped('true' if value is True else 'false' if value is False else text)}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def main(directory: Path) -> None:
    """Write DIRECTORY/CHART/values.schema.json and README.md for each chart."""
    for chart in sorted(path.parent for path in CHARTS.glob("*/Chart.yaml")):
        root = read((chart / "values.yaml").read_text())
        before, begins, remainder = (chart / "README.md").read_text().partition(BEGIN)
        _, ends, after = remainder.partition(END)
        if not (begins and ends):
            raise ValuesError(f"charts/{chart.name}/README.md lacks the lines {BEGIN.strip()} and {END.strip()}")
        folder = directory / chart.name
        folder.mkdir()
        schema = json_schema(root, title=f"Values of the chart {chart.name}")
        (folder / "values.schema.json").write_text(json.dumps(schema, indent=1) + "\n")
        (folder / "README.md").write_text(f"{before}{begins}\n{table(root)}\n{ends}{after}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
