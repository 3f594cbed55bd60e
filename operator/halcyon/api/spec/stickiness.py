"""`spec.traffic.stickiness`: the routing of related requests to one pod."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from halcyon.api.spec.fields import Documented


class Stickiness(Documented):
    """Routing of related requests to one pod: those of a sequence, or of a conversation whose cache a pod holds."""

    header: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,62}$", min_length=1, max_length=63)]
    """Header (in gRPC: metadata) that clients send with each request, for example `x-sequence-id`. Requests with the
    same value go to the same pod, even while it drains. The balancer cannot read a sequence id in the body. A change
    starts a rollout."""
