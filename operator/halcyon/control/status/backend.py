"""Conditions about pods with a dead backend, or in which all requests fail. They come from the agents' reports."""

from __future__ import annotations

from halcyon.api.conditions import Condition, Reason, Type
from halcyon.control.objects import pods
from halcyon.control.state.scope import Scope


def dead_backend(scope: Scope) -> str:
    """Return a message that names the first live pod with a dead backend; empty if there is none."""
    dead = {**scope.signals.restarting, **scope.signals.dead} if scope.signals else {}
    names = (p["metadata"]["name"] for p in scope.pods if p["metadata"]["name"] in dead and pods.is_live(p))
    name = min(names, default="")
    return f"the backend of pod {name} is dead: {dead[name]}; its container is being restarted" if name else ""


def requests_failing(scope: Scope) -> Condition | None:
    """Return the RequestsFailing condition for pods that fail all requests without a dead backend, or None."""
    live = {pod["metadata"]["name"] for pod in scope.pods if pods.is_live(pod)}
    failures = scope.signals.failing if scope.signals else {}
    failing = {name: text for name, text in failures.items() if name in live}
    if not failing:
        return None
    name = min(failing)
    text = (
        f"requests fail in {len(failing)} of {len(live)} pods, for example in pod {name}: {failing[name]}. "
        f"Compare clients' requests with the model's inputs, and read the log: kubectl logs {name}"
    )
    return Condition(Type.REQUESTS_FAILING, status=True, reason=Reason.BACKEND_ERRORS, message=text)
