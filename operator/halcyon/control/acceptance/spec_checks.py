"""Checks of a spec that the schema can't express, because they need a calendar or the site's settings. Pure."""

from __future__ import annotations

from halcyon.api.spec import Spec
from halcyon.render.site import Site
from halcyon.scaling.planner.objectives import schedules
from halcyon.scaling.schedules import problems


def objections(spec: Spec, site: Site) -> list[str]:
    """Return a sentence for each error in the spec; an empty list if there is none."""
    return [f"spec.scaling.schedules: {problem.describe()}" for problem in problems(schedules(spec))] + [
        (
            f"spec.traffic.service.annotations has {key}, which this site does not allow; {_allowed(site)} "
            "(operator option --service-annotations)"
        )
        for key in site.refused_annotations(spec.traffic.service.annotations or ())
    ]


def _allowed(site: Site) -> str:
    if not site.service_annotations:
        return "no annotations are allowed"
    return "keys must start with one of " + ", ".join(site.service_annotations)
