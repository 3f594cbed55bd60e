"""Keys of `spec.runtime.podLabels` and `.podAnnotations` that no site can allow: those that belong to Halcyon."""

from __future__ import annotations

from halcyon.api.types import GROUP, Rule

OWN = (f"{GROUP}/", "app.kubernetes.io/", "pod-template-hash")
"""Beginnings of the keys that Halcyon, its selectors and Deployments rely on."""


def no_own_keys(field: str, attribute: str) -> Rule:
    """Return the rule that the map in this field of `runtime` has none of these keys."""
    return Rule(
        cel=f"!has(self.{field}) || self.{field}.all(k, " + " && ".join(f"!k.startsWith('{own}')" for own in OWN) + ")",
        check=lambda m: not any(key.startswith(OWN) for key in getattr(m, attribute) or ()),
        message=f"spec.runtime.{field} has a key that Halcyon itself sets; keys must not start with {', '.join(OWN)}; "
        "for example team.example.com/cost-center",
    )
