"""Checks of a spec that the schema can't express, because they need a calendar or the site's settings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from halcyon.api.spec import Spec
from halcyon.render.site import Site
from halcyon.scaling.planner.objectives import schedules
from halcyon.scaling.schedules import problems


def objections(spec: Spec, site: Site) -> list[str]:
    """Return a message for each error in the spec; an empty list if there is none."""
    runtime, annotations = spec.runtime, spec.traffic.service.annotations
    return [
        *(f"spec.scaling.schedules: {problem.describe()}" for problem in problems(schedules(spec))),
        *_unlisted("traffic.service.annotations", annotations, site.service_annotations, "serviceAnnotations"),
        *_unlisted("runtime.podLabels", runtime.pod_labels, site.model_pod_labels, "modelPodLabels"),
        *_unlisted(
            "runtime.podAnnotations", runtime.pod_annotations, site.model_pod_annotations, "modelPodAnnotations"
        ),
    ]


def _unlisted(field: str, keys: Iterable[str] | None, allowed: tuple[str, ...], value: str) -> Iterator[str]:
    """Yield an error message for each key that isn't in `allowed`, the list in the chart value named `value`.

    An entry of the list with a slash is a prefix of allowed keys. Any other entry is a complete key.
    """
    keys_allowed = ", ".join(f"{entry}*" if "/" in entry else entry for entry in allowed)
    hint = f"allowed: {keys_allowed}" if allowed else f"no {field.rpartition('.')[2]} are allowed"
    option = "".join(f"-{c.lower()}" if c.isupper() else c for c in value)
    for key in sorted(keys or ()):
        if not any(key.startswith(entry) if "/" in entry else key == entry for entry in allowed):
            yield (
                f"spec.{field} has {key}, which this site does not allow; {hint} (operator option --{option}, chart value "
                f"{value})"
            )
