"""Revisions of a model: an accepted spec with its rendered pod template, stored as a ControllerRevision.

The name of the ControllerRevision is derived from the user's spec, not from the rendered template. A newer operator therefore finds the
existing record, and applies its template unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from halcyon.api.policy.downloads import NO_DOWNLOADS
from halcyon.api.spec import Spec, routing_mode
from halcyon.api.spec.parse import SpecError, parse
from halcyon.api.types import GROUP, ApiModel, quantity
from halcyon.render import model_overlay, names, server, server_start
from halcyon.render.metadata import Object, child
from halcyon.render.site import Site, Subject

HISTORY_LIMIT = 10
"""Number of ControllerRevisions that are kept per model. Older ones are deleted."""
NOTE = f"{GROUP}/rollout"
"""Annotation of a ControllerRevision with the outcome of the revision's rollout. Unlike the data of a
ControllerRevision, it can change."""
SEAL = f"{GROUP}/accepted"
"""Annotation of the newest ControllerRevision with the digest of the accepted spec, which reveals whether the stored
spec has been edited."""
_FORMAT = 1


@dataclass(frozen=True)
class Content:
    """Files of a model in a ConfigMap, limited to the keys that the source lists."""

    data: Mapping[str, str]
    binary: Mapping[str, str]
    """Values of the ConfigMap's `binaryData`, by key, in base64 as in the API."""


@dataclass(frozen=True)
class Revision:
    """Revision with all data needed to build its servers."""

    key: str
    template: Object
    model: str
    overlay: str
    """Text of the overlay for the model's config.pbtxt. The name of the overlay's ConfigMap contains a digest of it."""
    snapshot: str | None
    """Name of the ConfigMap with the copy of the model's files; None if the model is not in a ConfigMap."""
    startup_timeout_s: int
    number: int
    note: str = ""
    """Text of the annotation `NOTE`; empty if there is no such annotation."""
    base: str = ""
    """Key of the spec if this revision is a newer rendering of the spec of an older revision; otherwise empty, because
    `key` is then the key of the spec."""
    version: str = ""
    """Version of the operator that rendered the template; empty if unknown."""
    site: str = ""
    """Digest of the operator version and the site settings with which the template was rendered (`site_digest`)."""
    spec: Mapping[str, Any] | None = None
    """Parts `model`, `runtime` and `batching` of the spec, without defaults; None if an older version stored the revision."""
    seal: str = ""
    """Digest of the accepted spec, from the annotation `SEAL`; empty if there is no such annotation."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Data stored by a later operator version that this version doesn't know."""

    @property
    def spec_key(self) -> str:
        """Return the key of the user's spec, which is the same for all renderings of it."""
        return self.base or self.key


def key(subject: Subject, spec: Spec, content: Content | None) -> str:
    """Return the key of a revision: a digest of the model's files and of all parts of the spec that affect server pods.

    Fields with their default value are excluded, so that fields added in a later version change no key and restart no
    pods.
    """
    inputs: dict[str, Any] = {
        "model": _set_fields(spec.model),
        "runtime": _set_fields(spec.runtime),
        "batching": _set_fields(spec.batching) if spec.batching else None,
        "drain": spec.traffic.drain_timeout,
        "name": subject.name,
        "content": None if content is None else names.digest([dict(content.data), dict(content.binary)]),
    }
    if routing_mode.is_direct(spec):
        inputs["direct"] = True
    if bodies := server_start.larger_bodies(int(quantity(spec.traffic.max_request_size))):
        inputs["bodies"] = bodies
    if spec.traffic.stickiness is not None:
        inputs["stickiness"] = spec.traffic.stickiness.header
    return names.digest(inputs)


def _set_fields(part: ApiModel) -> dict[str, Any]:
    return part.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def render(
    subject: Subject, spec: Spec, site: Site, content: Content | None, *, number: int, as_key: str = ""
) -> Revision:
    """Render the revision of a spec.

    If `as_key` is set, it is used as the key of the revision instead of the key of the spec.
    """
    base = key(subject, spec, content)
    revision_key = as_key or base
    text = model_overlay.build(subject.name, spec).to_json()
    model = model_overlay.model_name(subject.name, spec)
    copied = None if content is None else names.snapshot(subject.name, [dict(content.data), dict(content.binary)])
    template = server.pod_template(
        subject,
        spec,
        site,
        revision=revision_key,
        model=model,
        overlay=names.overlay(subject.name, text),
        snapshot=copied,
    )
    return Revision(
        key=revision_key,
        template=template,
        model=model,
        overlay=text,
        snapshot=copied,
        startup_timeout_s=server.startup_s(spec),
        number=number,
        base="" if revision_key == base else base,
        version=site.version,
        site=site_digest(site),
        spec=_parts(spec),
    )


def _parts(spec: Spec) -> Mapping[str, Any]:
    batching = {} if spec.batching is None else {"batching": _set_fields(spec.batching)}
    return {"model": _set_fields(spec.model), "runtime": _set_fields(spec.runtime), **batching}


def serving_spec(name: str, spec: Spec, serving: Revision | None) -> Spec:
    """Return the spec of the model `name` with `model`, `runtime` and `batching` of the revision that serves.

    The revision isn't that of the spec during a rollout, and after a rollback. The spec is returned unchanged if the
    revision is unknown, or if its parts contradict the other parts of the spec.
    """
    if serving is None or serving.spec is None or serving.spec == (parts := _parts(spec)):
        return spec
    others = {part: value for part, value in spec.to_dict().items() if part not in {*parts, "batching"}}
    try:
        return parse(name, others | dict(serving.spec))
    except SpecError:
        return spec


def site_digest(site: Site) -> str:
    """Return a digest of the operator version and of the site settings that affect the pod template of servers.

    As long as this digest stays the same, a spec always renders to the same template.
    """
    parts: list[Any] = [site.version, site.operator_image, site.server_image, list(site.pull_secrets)]
    models, exempt = site.policy.models, list(site.policy.exempt_namespaces)
    if models.backends is not None:
        parts += [list(models.backends), exempt]
    if models.urls is not None or models.endpoints is not None:
        parts += ["sources", models.urls is not None, models.endpoints is not None, exempt]
    if site.cpu_limit:
        parts += ["cpu limit", site.cpu_limit]
    if not site.fixed_user_ids:
        parts.append("assigned user ids")
    if site.downloads != NO_DOWNLOADS:
        parts += ["downloads", site.downloads.model_dump_json()]
    return names.digest(parts)


def record(subject: Subject, revision: Revision) -> Object:
    """Build the ControllerRevision that stores the revision."""
    result = child("apps/v1", "ControllerRevision", subject, names.revision(subject.name, revision.key), names.SERVER)
    noted = {key: text for key, text in ((NOTE, revision.note), (SEAL, revision.seal)) if text}
    if noted:
        result["metadata"]["annotations"] = noted
    result["revision"] = revision.number
    result["data"] = {
        # The data can't be changed. An operator that is rolled back to an earlier version also writes the annotations.
        **revision.others,
        "format": _FORMAT,
        "key": revision.key,
        "template": revision.template,
        "model": revision.model,
        "overlay": revision.overlay,
        "snapshot": revision.snapshot or "",
        "startupTimeoutSeconds": revision.startup_timeout_s,
        **({"base": revision.base} if revision.base else {}),
        **({"version": revision.version} if revision.version else {}),
        **({"site": revision.site} if revision.site else {}),
        **({"spec": revision.spec} if revision.spec is not None else {}),
    }
    return result


def read(stored: Mapping[str, Any]) -> Revision | None:
    """Parse the revision in a ControllerRevision. Return None if its format is unknown or invalid."""
    data = stored.get("data") or {}
    if not isinstance(data, Mapping) or data.get("format") != _FORMAT or not _is_complete(data):
        return None
    return Revision(
        key=data["key"],
        template=data["template"],
        model=data["model"],
        overlay=data["overlay"],
        snapshot=data["snapshot"] or None,
        startup_timeout_s=data["startupTimeoutSeconds"],
        number=int(stored.get("revision", 0)),
        note=(stored["metadata"].get("annotations") or {}).get(NOTE, ""),
        seal=(stored["metadata"].get("annotations") or {}).get(SEAL, ""),
        base=str(data.get("base", "")),
        version=str(data.get("version", "")),
        site=str(data.get("site", "")),
        spec=data["spec"] if isinstance(data.get("spec"), Mapping) else None,
        others={name: value for name, value in data.items() if name not in _KNOWN | _HELD.keys()},
    )


_KNOWN = frozenset({"format", "snapshot", "base", "version", "site", "spec"})
_HELD: dict[str, type] = {"key": str, "template": dict, "model": str, "overlay": str, "startupTimeoutSeconds": int}


def _is_complete(data: Mapping[str, Any]) -> bool:
    return all(isinstance(data.get(name), kind) for name, kind in _HELD.items()) and isinstance(
        data.get("snapshot"), str | None
    )


def overlay_map(subject: Subject, revision: Revision) -> Object:
    """Build the immutable ConfigMap with the overlay, which the fetcher reads."""
    name = names.overlay(subject.name, revision.overlay)
    result = child("v1", "ConfigMap", subject, name, names.SERVER)
    result["immutable"] = True
    result["data"] = {"overlay.json": revision.overlay}
    return result


def snapshot_map(subject: Subject, name: str, content: Content) -> Object:
    """Build the immutable copy of the model's ConfigMap.

    Pods of the revision load this copy, even if the original has changed since.
    """
    result = child("v1", "ConfigMap", subject, name, names.SERVER)
    result["immutable"] = True
    if content.data:
        result["data"] = dict(content.data)
    if content.binary:
        result["binaryData"] = dict(content.binary)
    return result


def config_maps(revision: Revision, name: str) -> set[str]:
    """Return the names of the ConfigMaps that the pods of a revision mount."""
    return {names.overlay(name, revision.overlay)} | ({revision.snapshot} if revision.snapshot else set())
