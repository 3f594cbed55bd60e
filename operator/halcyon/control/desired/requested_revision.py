"""The revision that the spec requests: a new one if the spec or the source ConfigMap has changed, else a stored one. Pure."""

from __future__ import annotations

from dataclasses import replace

from halcyon.api.spec import Spec
from halcyon.control.rollout import refresh
from halcyon.control.state.scope import Scope
from halcyon.render import revision
from halcyon.render.revision import Revision


# accepted   this spec has a        it would be rendered   refresh     the requested revision
#            ControllerRevision     differently now        requested
# no         -                      -                      -           the newest; None if there is none
# yes        no                     -                      -           rendered now
# yes        yes                    -                      as restart  rendered now, with a new key
# yes        yes                    no                     -           from its ControllerRevision
# yes        yes                    yes                    no          from its ControllerRevision, and it is outdated
# yes        yes                    yes                    yes         rendered now, with a new key
def find_requested(scope: Scope, spec: Spec, *, accepted: bool) -> tuple[Revision | None, tuple[str, ...]]:
    """Return the requested revision. If it is outdated, also return its differences from a new rendering."""
    newest = max(scope.revisions, key=lambda r: r.number, default=None)
    if not accepted:
        return newest, ()
    request_digest = revision.key(scope.subject, spec, scope.source.content)
    number = newest.number if newest else 0
    # After a refresh one spec has several renderings; the newest is in force.
    stored = max((r for r in scope.revisions if r.spec_key == request_digest), key=lambda r: r.number, default=None)
    if stored is None:
        return revision.render(scope.subject, spec, scope.site, scope.source.content, number=number + 1), ()
    # Two revisions have the same number if a new leader wrote one before it had seen that of the former leader.
    is_newest = all(r.number < stored.number for r in scope.revisions if r.key != stored.key)
    current = stored if is_newest else replace(stored, number=number + 1)
    if refresh.is_requested(scope, stored, refresh.RESTART):
        return refresh.compare(scope, spec, stored, number + 1)[1], ()
    if stored.site == revision.site_digest(scope.site):
        return current, ()
    differs, rendered = refresh.compare(scope, spec, stored, number + 1)
    return (rendered, ()) if differs and refresh.is_requested(scope, stored) else (current, differs)
