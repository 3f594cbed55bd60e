"""The revision that the spec requests. It is new if the spec or the source ConfigMap has changed, else stored. Pure."""

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
def requested(view: Scope, spec: Spec, *, accepted: bool) -> tuple[Revision | None, tuple[str, ...]]:
    """Return the requested revision. If it is outdated, also return its differences from a new rendering."""
    newest = max(view.revisions, key=lambda r: r.number, default=None)
    if not accepted:
        return newest, ()
    wanted = revision.key(view.subject, spec, view.source.content)
    number = newest.number if newest else 0
    # After a refresh one spec has several renderings; the newest is in force.
    known = max((r for r in view.revisions if r.spec_key == wanted), key=lambda r: r.number, default=None)
    if known is None:
        return revision.render(view.subject, spec, view.site, view.source.content, number=number + 1), ()
    kept = known if known.number == number else replace(known, number=number + 1)
    if refresh.is_wanted(view, known, refresh.RESTART):
        return refresh.compared(view, spec, known, number + 1)[1], ()
    if known.site == revision.site_digest(view.site):
        return kept, ()
    differs, rendered = refresh.compared(view, spec, known, number + 1)
    return (rendered, ()) if differs and refresh.is_wanted(view, known) else (kept, differs)
