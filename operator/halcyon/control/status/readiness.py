"""The Ready condition: whether a model answers requests. Pure."""

from __future__ import annotations

from halcyon.api.conditions import Condition, Reason, Type


# Accepted    accepted spec in effect    requests are served    Ready
# True        yes                        any                    as `traffic`
# not True    yes                        yes                    as `traffic`: a rejected change is no outage
# not True    else                                              False    the reason of Accepted
def ready(accepted: Condition, served: Condition, *, in_effect: bool) -> Condition:
    """Return the Ready condition. `served` is the result of `traffic`.

    `in_effect` is true if any accepted spec is in effect, the current one or an earlier one.
    """
    if accepted.status is True or (in_effect and served.status is True):
        return served
    return Condition(Type.READY, status=False, reason=accepted.reason, message=accepted.message)


# BalancerReady or    servers ready    Ready
# RoutesAccepted
# Unknown             -                Unknown
# False               -                False
# True                0 desired        True     ScaledToZero
# True                1 or more        True
# True                none             False    the reason of ModelLoaded or of ServersReady
def traffic(servers: Condition, balancer: Condition, loaded: Condition) -> Condition:
    """Return the Ready condition of an accepted spec: whether requests are served, and the reason if they aren't."""
    if balancer.status is None:
        return Condition(Type.READY, status=None, reason=Reason.UNKNOWN, message=balancer.message)
    if not balancer.status:
        return Condition(Type.READY, status=False, reason=balancer.reason, message=balancer.message)
    if servers.reason is Reason.SCALED_TO_ZERO:
        return Condition(Type.READY, status=True, reason=servers.reason, message=servers.message)
    if servers.status or servers.reason is Reason.PARTIALLY_READY:
        return Condition(Type.READY, status=True, reason=Reason.READY, message=servers.message)
    if loaded.status is False:
        return Condition(Type.READY, status=False, reason=loaded.reason, message=loaded.message)
    return Condition(Type.READY, status=servers.status, reason=servers.reason, message=servers.message)
