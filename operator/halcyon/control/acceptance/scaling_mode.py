"""Whether Halcyon may scale a model now, from the accepted spec and from the ModelDeployment itself. Pure.

A new spec comes into force with a delay, because it is checked, stored, and read back from the cache. A user who pauses
scaling must not wait for that. Scaling therefore stops as soon as the ModelDeployment is changed, but starts only with
the accepted spec. If the new spec is rejected, only the accepted spec counts.
"""

# accepted spec              ModelDeployment            new spec    scaled
# Active                     Active                     any         yes
# Active                     another mode, no scaling   rejected    yes
# Active                     another mode, no scaling   other       no
# another mode, no scaling   any                        any         no

from __future__ import annotations

from collections.abc import Mapping

from halcyon.api.conditions import Type
from halcyon.api.spec import Spec
from halcyon.kube.client import Object


def is_active(resource: Object, spec: Spec | None) -> bool:
    """Return whether Halcyon may change the replicas of a ModelDeployment whose accepted spec is `spec`."""
    if spec is None or spec.scaling is None or spec.scaling.mode != "Active":
        return False
    requested = (resource.get("spec") or {}).get("scaling")
    return (isinstance(requested, Mapping) and requested.get("mode", "Active") == "Active") or _is_rejected(resource)


def _is_rejected(resource: Object) -> bool:
    """Return whether the current generation of a ModelDeployment was rejected."""
    generation = resource["metadata"].get("generation")
    return any(
        c.get("type") == Type.ACCEPTED and c.get("status") == "False" and c.get("observedGeneration") == generation
        for c in (resource.get("status") or {}).get("conditions") or ()
    )
