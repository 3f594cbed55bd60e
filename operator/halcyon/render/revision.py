"""Revisions: an accepted spec and its rendered template, stored as a ControllerRevision.

The name is derived from the user's spec, not from the rendered template. A newer operator thus finds the old record and applies
it unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halcyon.api.spec import Spec, routing_mode
from halcyon.api.types import GROUP, ApiModel
from halcyon.render import model_overlay, names, server
from halcyon.render.metadata import Object, child
from halcyon.render.site import Site, Subject

KEPT = 10
"""Number of records kept, newest first."""
NOTE = f"{GROUP}/rollout"
"""Annotation of a record with the outcome of the revision. Unlike the record itself it changes."""
SEAL = f"{GROUP}/accepted"
"""Annotation of the newest record: the digest of the accepted spec, which is stored where users may edit it."""
_FORMAT = 1


@dataclass(frozen=True)
class Content:
    """Files of a model in a ConfigMap: the keys that the source names."""

    data: Mapping[str, str]
    binary: Mapping[str, str]
    """Values in base64, as in the API."""


@dataclass(frozen=True)
class Revision:
    """Record with everything needed to build the servers of one revision."""

    key: str
    template: Object
    model: str
    overlay: str
    """Text of the overlay; its ConfigMap is named after it."""
    snapshot: str | None
    """Name of the ConfigMap with the model's content."""
    startup_timeout_s: int
    number: int
    note: str = ""
    """Text of the annotation `NOTE`; empty if nothing is known."""
    base: str = ""
    """The spec's key, if this revision is a newer rendering of the same spec. Empty if that is `key` itself."""
    version: str = ""
    """Version of the operator that rendered it; empty if unknown."""
    site: str = ""
    """Digest of that version and of the site settings used in servers: see `site_digest`."""

    seal: str = ""
    """Digest of the accepted spec that requested this revision; empty if none was written."""

    @property
    def asks(self) -> str:
        """Return the key of the user's spec: the same for every rendering of it."""
        return self.base or self.key


def key(subject: Subject, spec: Spec, content: Content | None) -> str:
    """Return what identifies a revision: the parts of the spec that affect a server pod, and the content.

    Defaults are excluded: a field added by a later version changes no key, so it restarts no pod.
    """
    asked: dict[str, Any] = {
        "model": _said(spec.model),
        "runtime": _said(spec.runtime),
        "batching": _said(spec.batching) if spec.batching else None,
        "drain": spec.traffic.drain_timeout,
        "name": subject.name,
        "content": None if content is None else names.digest([dict(content.data), dict(content.binary)]),
    }
    if routing_mode.is_direct(spec):
        asked["direct"] = True
    if spec.traffic.stickiness is not None:
        asked["stickiness"] = spec.traffic.stickiness.header
    return names.digest(asked)


def _said(part: ApiModel) -> dict[str, Any]:
    return part.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def render(
    subject: Subject, spec: Spec, site: Site, content: Content | None, *, number: int, as_key: str = ""
) -> Revision:
    """Render the revision of a spec; `as_key` is its key if it isn't the spec's own."""
    base = key(subject, spec, content)
    this = as_key or base
    text = model_overlay.build(subject.name, spec).to_json()
    model = model_overlay.model_name(subject.name, spec)
    copied = None if content is None else names.snapshot(subject.name, [dict(content.data), dict(content.binary)])
    template = server.pod_template(
        subject,
        spec,
        site,
        revision=this,
        model=model,
        overlay=names.overlay(subject.name, text),
        snapshot=copied,
    )
    return Revision(
        key=this,
        template=template,
        model=model,
        overlay=text,
        snapshot=copied,
        startup_timeout_s=server.startup_s(spec),
        number=number,
        base="" if this == base else base,
        version=site.version,
        site=site_digest(site),
    )


def site_digest(site: Site) -> str:
    """Return a digest of the operator's version and the site settings in a server's template.

    If it is equal, a spec renders to the same template.
    """
    parts: list[Any] = [site.version, site.operator_image, site.server_image, list(site.pull_secrets)]
    models, exempt = site.policy.models, list(site.policy.exempt_namespaces)
    if models.backends is not None:
        parts += [list(models.backends), exempt]
    if models.urls is not None or models.endpoints is not None:
        parts += ["sources", models.urls is not None, models.endpoints is not None, exempt]
    if not site.fixed_user_ids:
        parts.append("assigned user ids")
    return names.digest(parts)


def record(subject: Subject, revision: Revision) -> Object:
    """Build the ControllerRevision."""
    result = child("apps/v1", "ControllerRevision", subject, names.revision(subject.name, revision.key), names.SERVER)
    noted = {key: text for key, text in ((NOTE, revision.note), (SEAL, revision.seal)) if text}
    if noted:
        result["metadata"]["annotations"] = noted
    result["revision"] = revision.number
    result["data"] = {
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
    }
    return result


def read(stored: Mapping[str, Any]) -> Revision | None:
    """Read the revision in a ControllerRevision; None if its format is another one, or invalid."""
    data = stored.get("data") or {}
    if not isinstance(data, Mapping) or data.get("format") != _FORMAT or not _is_whole(data):
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
    )


_HELD: dict[str, type] = {"key": str, "template": dict, "model": str, "overlay": str, "startupTimeoutSeconds": int}


def _is_whole(data: Mapping[str, Any]) -> bool:
    return all(isinstance(data.get(name), kind) for name, kind in _HELD.items()) and isinstance(
        data.get("snapshot"), str | None
    )


def overlay_map(subject: Subject, revision: Revision) -> Object:
    """Build the immutable ConfigMap that the fetcher reads."""
    name = names.overlay(subject.name, revision.overlay)
    result = child("v1", "ConfigMap", subject, name, names.SERVER)
    result["immutable"] = True
    result["data"] = {"overlay.json": revision.overlay}
    return result


def snapshot_map(subject: Subject, name: str, content: Content) -> Object:
    """Build the immutable copy of the model's ConfigMap, which this revision's pods load even if the original changes."""
    result = child("v1", "ConfigMap", subject, name, names.SERVER)
    result["immutable"] = True
    if content.data:
        result["data"] = dict(content.data)
    if content.binary:
        result["binaryData"] = dict(content.binary)
    return result


def config_maps(revision: Revision, name: str) -> set[str]:
    """Return the names of the ConfigMaps that a revision needs."""
    return {names.overlay(name, revision.overlay)} | ({revision.snapshot} if revision.snapshot else set())
