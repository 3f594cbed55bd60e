"""Past revisions of a model, read from its ControllerRevisions, and the patch that restores one of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from halcyon.api.spec.parse import SpecError, parse
from halcyon.control.rollout.rollout_record import RolloutRecord
from halcyon.render import revision
from halcyon_cli.kube import fields, merge_patch

Json = Mapping[str, Any]
_PARTS = ("model", "runtime", "batching")


@dataclass(frozen=True)
class PastRevision:
    """Revision of a model, with the result of its rollout."""

    number: int
    name: str
    """Name of the ControllerRevision."""
    state: str
    """State of the revision. For a current revision, it is serving, canary, rolling out or failed. For any other
    revision, it is the result of its last rollout in lower case, or pending."""
    served: str
    """Time in RFC 3339 at which a rollout of this revision last succeeded; empty if none did."""
    finished: datetime | None
    """Time at which the revision's last rollout ended; None if unknown."""
    cause: str
    """Message of the revision's last rollout, for example about a failure. If there is no message, the image of the
    revision's server."""
    spec: Json | None
    """Recorded parts of the revision's spec; None if an older version of Halcyon recorded the revision."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of the revision."""
        finished = self.finished.isoformat() if self.finished else None
        return {"revision": self.number, "name": self.name, "state": self.state, "finishedAt": finished} | {
            "cause": self.cause, "spec": self.spec
        }  # fmt: skip


def past_revisions(model: Json, stored: Sequence[Json]) -> list[PastRevision]:
    """Return the revisions of a model, newest first. Invalid ControllerRevisions are omitted."""
    status = fields.mapping(model.get("status"))
    current, target = (fields.mapping(status.get("revision")).get(part) for part in ("current", "target"))
    in_canary = bool(fields.mapping(status.get("rollout")).get("canary"))
    revisions = []
    for obj in stored:
        recorded = revision.read(obj)
        if recorded is None:
            continue
        name, record = str(obj["metadata"]["name"]), RolloutRecord.of(recorded)
        state = record.result.lower() or "pending"
        if name == current:
            state = "serving"
        elif name == target:
            state = "canary" if in_canary else ("failed" if record.result == "Failed" else "rolling out")
        cause = " ".join(record.message.split()) or _image(recorded.template)
        revisions.append(
            PastRevision(recorded.number, name, state, record.served, fields.time(record.ended), cause, recorded.spec)
        )
    return sorted(revisions, key=lambda past: -past.number)


def _image(template: Json) -> str:
    containers = fields.mappings(fields.mapping(template.get("spec")).get("containers"))
    return next((str(container.get("image")) for container in containers if container.get("name") == "triton"), "")


def previous(revisions: Sequence[PastRevision]) -> PastRevision | None:
    """Return the revision that a rollback restores: of those before the newest one, the most recently served."""
    earlier = [past for past in revisions[1:] if past.served]
    return max(earlier, key=lambda past: past.served, default=None)


def restoring_patch(name: str, spec: Json, past: Json) -> dict[str, Any]:
    """Return the merge patch of the spec that restores the parts of a past revision; empty if nothing differs.

    `name` is the name of the model.
    """
    patch = {}
    current = _without_defaults(name, spec)
    for part in _PARTS:
        # A spec without runtime has all of its defaults, but one without batching has none.
        change = merge_patch.difference(current.get(part, {} if part == "runtime" else None), past.get(part))
        if change is not merge_patch.SAME:
            patch[part] = change
    return patch


def _without_defaults(name: str, spec: Json) -> Json:
    """Return a spec without default values, as a revision stores it. An invalid spec is returned as it is."""
    try:
        parsed = parse(name, spec)
    except SpecError:
        return spec
    return parsed.model_dump(mode="json", by_alias=True, exclude_defaults=True)
