"""A wait for steady load before a step, for scenarios of the planner."""

from typing import Any

from demo import models
from demo.errors import DemoError
from demo.kube import Kube, wait_for


def scaling(kube: Kube, name: str) -> dict[str, Any]:
    """Return status.scaling; empty if there is none."""
    return ((kube.model(name) or {}).get("status") or {}).get("scaling") or {}


def wait_until_calm(kube: Kube, name: str, rate_rps: float) -> dict[str, Any]:
    """Wait until a replica's capacity and the rate are known and one replica serves, and return status.scaling.

    On a slow machine, the first requests wait and cause more replicas, until the capacity of one is known. These
    replicas stay for a while, and a step during this time would need no more.

    Args:
        kube: the cluster.
        name: name of the model.
        rate_rps: rate of the requests that are sent, below the capacity of one replica.

    Raises:
        DemoError: the time limit passed; the message has the decisions.
    """

    status: dict[str, Any] = {}

    def is_known() -> bool:
        """Return True if the status has both values, which are updated every 10 s at most."""
        nonlocal status
        status = scaling(kube, name)
        values = {signal["name"]: float(signal.get("value", "0")) for signal in status.get("signals", ())}
        return (
            "per replica needs 1" in status.get("why", "")
            and rate_rps / 2 < values.get("requestRate", 0.0) < 2 * rate_rps
        )

    try:
        wait_for(is_known, goal="capacity and rate are known", limit_s=60)
        wait_for(lambda: models.ready_servers(kube, name) == 1 and is_known(), goal="one serves", limit_s=400)
    except DemoError as error:
        raise DemoError(f"{error}; scaling: {scaling(kube, name)}") from error
    return status
