"""`spec.traffic.stickiness`: requests that belong together go to one pod."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from halcyon.api.spec.fields import Documented


class Stickiness(Documented):
    """Requests that belong together go to one pod: those of a sequence, or of one conversation whose cache a pod has."""

    header: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,62}$", min_length=1, max_length=63)]
    """Header (of gRPC: metadata) that clients send with each request, for example `x-sequence-id`. Requests with the same value go
    to the same pod, also while it drains. A sequence id in the body can't be read by a balancer. A change rolls the servers."""
