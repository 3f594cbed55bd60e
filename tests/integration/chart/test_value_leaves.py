"""Each value of the chart has an effect: the render changes with it.

All values are changed at once, each to a text or number that nothing else has. A value whose text is in the render has an
effect. The remaining ones are changed one at a time.
"""

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.charts import CHART, Object, Values, helm, laid_over
from tests.yaml_text import loaded

pytestmark = pytest.mark.more

SCHEMA: Object = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS: Values = loaded((CHART / "values.yaml").read_text())
BASE: Values = {
    "images": {"registry": "localhost"},
    "crds": {"install": False},
    "prePull": {"enabled": True},
    "prometheus": {
        "url": "http://prometheus:9090",
        "tokenSecret": {"name": "token"},
        "caConfigMap": {"name": "authorities"},
    },
    "dashboard": {
        "listen": "pod",
        "proxy": {"addresses": ["10.0.0.0/24"]},
        "ingress": {"enabled": True, "host": "halcyon.example.com"},
        "httpRoute": {"parentRefs": [{"name": "edge"}]},
    },
    "downloads": {"proxy": "http://proxy:3128"},
    "networkPolicies": {"operator": {"create": True}, "models": {"create": True, "clients": [{"podSelector": {}}]}},
    "tracing": {"endpoint": "http://collector:4318/v1/traces"},
    "monitoring": {name: {"create": True} for name in ("serviceMonitor", "podMonitors", "prometheusRule")},
    "dashboards": {"enabled": True},
    "sitePolicy": {"triton": {"refuseBelow": "25.01"}},
    "test": {"image": {"repository": "tiny", "tag": "v1"}},
}
"""Values with which every part of the chart is rendered, apart from the CRDs, which take most of the time."""
ALONE: dict[str, Values] = {
    "watchNamespaces": {},
    "fullnameOverride": {},
    "crds.install": {},
    "metricsAPI.register": {},
    "serviceAccount.create": {"serviceAccount": {"name": "given"}},
    "hostNetwork": {
        "ports": {"https": 10260},
        "networkPolicies": {"operator": {"create": False}, "models": {"operator": [{"podSelector": {}}]}},
    },
    "prometheus.caSecret.name": {"prometheus": {"caConfigMap": {"name": ""}}},
    "prometheus.caSecret.key": {"prometheus": {"caConfigMap": {"name": ""}, "caSecret": {"name": "authorities"}}},
    "dashboard.enabled": {
        "dashboard": {"proxy": {"addresses": []}, "ingress": {"enabled": False}, "httpRoute": {"parentRefs": []}}
    },
    "dashboard.listen": {
        "dashboard": {"proxy": {"addresses": []}, "ingress": {"enabled": False}, "httpRoute": {"parentRefs": []}}
    },
}
"""Values that exclude others, and what they need beside BASE."""
SAMPLES: Values = {
    "dashboard.proxy.addresses": ["10.7.0.0/16"],
    "extraArgs": ["--workers=7"],
    "monitoring.prometheusRule.without": ["HalcyonGPUIdle"],
    "networkPolicies.operator.apiServerPorts": [7443],
    "serviceAnnotations": ["t0x.example.com/"],
    "cost.pricePerGpuHour": {"default": 7.25},
    "resources.requests": {"cpu": "7001m"},
    "test.resources.requests": {"cpu": "7002m"},
    "test.resources.limits": {"cpu": "7003m"},
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t1x"}}],
}
"""Values that a schema alone does not give."""
_FORMS = (
    "t{0}x", "t{0}x-x", "http://t{0}x.example.com:3128", "https://t{0}x.example.com/t", "s3://t{0}x", "t{0}x/t", "t{0}x.example.com",
    "sha256:{0:064x}", "2{0:02}m", "1{0:02}s", "30.{0:02}", "26.07", "Halcyont{0}x", "45s", "7", "10.{0}.0.0/16",
)  # fmt: skip
_NUMBERS = itertools.count(10)


def leaves(values: Values, schema: Object, path: str = "") -> Iterator[tuple[str, Any, Object]]:
    """Yield each value with its path, its default and its schema."""
    for name, default in values.items():
        below = _resolved(_resolved(schema)["properties"][name])
        dotted = f"{path}.{name}".removeprefix(".")
        if isinstance(default, dict) and default and "properties" in below:
            yield from leaves(default, below, dotted)
        else:
            yield dotted, default, below


def _resolved(schema: Object) -> Object:
    while "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema


def sample(schema: Object, default: Any = None) -> Any:
    """Return a valid value that differs from the default and, if possible, from all others."""
    schema = _resolved(schema)
    kinds = schema.get("type", "string")
    kind = kinds if isinstance(kinds, str) else next(name for name in kinds if name != "null")
    if "enum" in schema:
        return next(choice for choice in reversed(schema["enum"]) if choice not in {default, None})
    if kind == "boolean":
        return not default
    if kind in {"integer", "number"}:
        return _number(schema, default, integral=kind == "integer")
    if kind == "array":
        return [sample(schema["items"])]
    if kind == "object":
        return _object(schema)
    number = next(_NUMBERS)
    texts = (form.format(number) for form in _FORMS)
    pattern = re.compile(schema.get("pattern", ""))
    return next(text for text in texts if pattern.search(text) and len(text) <= schema.get("maxLength", 4096))


def _number(schema: Object, default: Any, *, integral: bool) -> Any:
    if not integral:
        return 0.5 if default != 0.5 else 0.25
    number = int(schema.get("minimum", 0)) + 7000 + next(_NUMBERS)
    return number if number <= schema.get("maximum", number) else (default or schema.get("minimum", 0)) + 1


def _object(schema: Object) -> Values:
    if isinstance(below := schema.get("additionalProperties"), dict):
        return {f"t{next(_NUMBERS)}x": sample(below)}
    if patterns := schema.get("patternProperties"):
        pattern, below = next(iter(patterns.items()))
        return {sample({"pattern": pattern}): sample(below)}
    required = schema.get("required") or [next(iter(schema["properties"]))]
    return {name: sample(schema["properties"][name]) for name in required}


def nested(path: str, value: Any) -> Values:
    for name in reversed(path.split(".")):
        value = {name: value}
    changed: Values = value
    return changed


def rendered(values: Values) -> str:
    done = helm("template", "halcyon", str(CHART), values=values)
    assert done.returncode == 0, f"{values}: {done.stderr}"
    return done.stdout


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts and numbers in a value that nothing else has."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from _texts(name)
            yield from _texts(below)
    elif isinstance(value, list):
        for below in value:
            yield from _texts(below)
    elif re.search(r"t\d+x|7\d{3}|\d{60}", str(value)):
        yield str(value)


def test_every_value_changes_what_is_rendered() -> None:
    changes = {path: SAMPLES.get(path) or sample(schema, default) for path, default, schema in leaves(DEFAULTS, SCHEMA)}
    together = BASE
    for path, value in changes.items():
        if path not in ALONE and any(_texts(value)):
            together = laid_over(together, nested(path, value))
    everything = rendered(together)
    effective = {
        path for path, value in changes.items() if path not in ALONE and any(t in everything for t in _texts(value))
    }
    assert len(effective) > 80

    bases = {"{}": rendered(BASE)}
    dead = []
    for path in changes.keys() - effective:
        base = laid_over(BASE, beside := ALONE.get(path, {}))
        before = bases.setdefault(json.dumps(beside), "") or rendered(base)
        bases[json.dumps(beside)] = before
        value = changes[path]
        if _at(base, path) == value:  # BASE has the only other value
            value = _at(DEFAULTS, path)
        if rendered(laid_over(base, nested(path, value))) == before:
            dead.append(path)
    assert dead == []


def _at(values: Values, path: str) -> Any:
    value: Any = values
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
