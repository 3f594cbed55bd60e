"""Site policy as ValidatingAdmissionPolicies, which are enforced even while the operator is down.

`python -m generators.admission_policies` prints the part that does not depend on the site: the chart's
files/site-policy.yaml, from which its template builds the same objects as `policies`. Each limit becomes a literal in
CEL, so no parameter object can be missing or stale in the API server.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import yaml

from generators.policy_expressions import EXPRESSIONS, SHARED
from halcyon.api.policy.rules import RULES, PolicyRule, at
from halcyon.api.policy.site_policy import SitePolicy
from halcyon.api.types import GROUP, PLURAL, VERSION, cel_string

Object = dict[str, Any]

DIGESTS: Final = ("tritonDigests", "triton.digests")
"""Name of a variable that several rules need, and the path of its value in the policy."""
CHANGED: Final = "request.operation == 'CREATE' || object.spec != oldObject.spec"
"""Match condition with which only a new or changed spec is checked. Objects that were accepted before a limit existed
can still be labelled and deleted."""


def variable(rule: PolicyRule) -> str:
    """Return the name of the limit in CEL."""
    section, _, name = rule.value.partition(".")
    return section + name[0].upper() + name[1:]


def parts(rule: PolicyRule) -> Object:
    """Return the parts of the policies that a rule adds if its limit is set."""
    name = variable(rule)
    limit = f"variables.{name}"
    return {
        "value": rule.value,
        "variable": name,
        "action": rule.action,
        "found": EXPRESSIONS[rule.value].replace("LIMIT", limit),
        "message": _message(rule, limit),
        "static": f"not allowed by sitePolicy.{rule.value} of this site",
    }


def _message(rule: PolicyRule, limit: str) -> str:
    """Return the message template as CEL.

    It uses `format`, because the API server assumes that concatenated strings may have any length, and rejects the
    cost.
    """
    limit_text = f"(size({limit}) == 0 ? 'none' : {limit}.join(', '))" if _is_list(rule) else f"string({limit})"
    text, values = rule.message.replace("%", "%%"), []
    while (places := sorted((text.find(mark), mark) for mark in ("{found}", "{limit}") if mark in text)) != []:
        text = text.replace(places[0][1], "%s", 1)
        values.append(limit_text if places[0][1] == "{limit}" else f"variables.{variable(rule)}Found.join(', ')")
    text = text.replace("{{", "{").replace("}}", "}")
    return f"{cel_string(text)}.format([{', '.join(values)}])"


def _is_list(rule: PolicyRule) -> bool:
    section, _, name = rule.value.partition(".")
    part = type(at(SitePolicy(), section))
    (field,) = (info for key, info in part.model_fields.items() if (info.alias or key) == name)
    return "tuple" in str(field.annotation)


def source() -> Object:
    """Return the data from which the chart's template is built."""
    return {
        "changed": CHANGED,
        "digests": dict(zip(("variable", "value"), DIGESTS, strict=True)),
        "shared": [{"name": name, "expression": cel} for name, cel in SHARED],
        "rules": [parts(rule) for rule in RULES],
    }


def policies(policy: SitePolicy, name: str, *, namespaces: tuple[str, ...] = ()) -> list[Object]:
    """Return the policies and their bindings; an empty list if no limit is set.

    Args:
        policy: the site policy.
        name: name of the objects. The objects for warnings have this name with a suffix.
        namespaces: namespaces to which the policies apply; empty for all.
    """
    objects = []
    for action, suffix in (("Deny", ""), ("Warn", "-warnings")):
        rules = [rule for rule in RULES if rule.action == action and rule.limit(policy) is not None]
        if rules:
            objects += [_policy(policy, rules, name + suffix, namespaces), _binding(name + suffix, action)]
    return objects


def _policy(policy: SitePolicy, rules: list[PolicyRule], name: str, namespaces: tuple[str, ...]) -> Object:
    conditions = [{"name": "changed", "expression": CHANGED}]
    if policy.exempt_namespaces:
        exempt = f"!(request.namespace in {_literal(policy.exempt_namespaces)})"
        conditions.append({"name": "not-exempt", "expression": exempt})
    constraints: Object = {
        "resourceRules": [
            {"apiGroups": [GROUP], "apiVersions": [VERSION], "operations": ["CREATE", "UPDATE"], "resources": [PLURAL]}
        ]
    }
    if namespaces:
        namespace_expression = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
        constraints["namespaceSelector"] = {"matchExpressions": [namespace_expression]}
    settings = [(variable(rule), rule.limit(policy)) for rule in rules] + [(DIGESTS[0], at(policy, DIGESTS[1]))]
    variables = [(key, _literal(value)) for key, value in settings] + list(SHARED)
    variables += [(f"{rule_parts['variable']}Found", rule_parts["found"]) for rule_parts in map(parts, rules)]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": constraints,
            "matchConditions": conditions,
            "variables": [{"name": key, "expression": cel} for key, cel in variables],
            "validations": [
                {
                    "expression": f"size(variables.{rule_parts['variable']}Found) == 0",
                    "messageExpression": rule_parts["message"],
                    "message": rule_parts["static"],
                    "reason": "Forbidden",
                }
                for rule_parts in map(parts, rules)
            ],
        },
    }


def _binding(name: str, action: str) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": [action]},
    }


def _literal(value: Any) -> str:  # any JSON value
    """Return a limit as a CEL literal. JSON is valid CEL if it contains no null."""
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    sys.stdout.write(
        "# Written by scripts/generate from generators/policy_expressions.py and operator/halcyon/api/policy/rules.py; change those.\n"
    )
    yaml.safe_dump(source(), sys.stdout, sort_keys=False, width=120)
