"""The calm before a step, for scenarios of the planner."""

from typing import Any

from demo import models
from demo.errors import DemoError
from demo.kube import Kube, wait_for


def scaling(kube: Kube, name: str) -> dict[str, Any]:
    """The status's part of scaling; empty where there is none."""
    return ((kube.model(name) or {}).get("status") or {}).get("scaling") or {}


def wait_until_calm(kube: Kube, name: str, rate_rps: float) -> dict[str, Any]:
    """Return the status's part of scaling when one replica's capacity and the rate are known, and one serves.

    Where the machine is slow, the first requests wait and bring more replicas, until it is known what one can do. Those stay
    for a while: a step that found them would need none.

    Args:
        kube: the cluster.
        name: of the model.
        rate_rps: requests per second that are sent, fewer than one replica can do.

    Raises:
        DemoError: it was not calm in time; tells what was decided.
    """

    found: dict[str, Any] = {}

    def known() -> bool:
        """The status tells of values every 10 s at most."""
        nonlocal found
        found = scaling(kube, name)
        told = {signal["name"]: float(signal.get("value", "0")) for signal in found.get("signals", ())}
        return (
            "per replica needs 1" in found.get("why", "") and rate_rps / 2 < told.get("requestRate", 0.0) < 2 * rate_rps
        )

    try:
        wait_for(known, what="capacity and rate are known", limit_s=60)
        wait_for(lambda: models.ready_servers(kube, name) == 1 and known(), what="one serves", limit_s=400)
    except DemoError as error:
        raise DemoError(f"{error}; scaling: {scaling(kube, name)}") from error
    return found
