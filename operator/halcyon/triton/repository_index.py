"""State of a pod's models in Triton's repository index. Pure.

A pod serves one model. Triton may load other models with it: the steps of an ensemble, or models that the served model
calls. The pod can't be ready without them, so their load errors count as those of the served model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halcyon.api.documents.repository_marker import STUB_EXIT
from halcyon.triton.errors import MAX_ERROR_CHARS, TritonError

DEAD_STUB = re.compile(r"Stub process\b[^\n]{0,200} is not healthy")
"""Triton's message for a request or a load that failed because a Python stub process has ended."""
_MAX_NAME_CHARS = 64
"""Maximum number of characters that an error quotes from a model's name."""


@dataclass(frozen=True)
class RepositoryIndex:
    """State of the served model in Triton's repository index."""

    versions: tuple[str, ...] = ()
    """Version numbers of the model that are ready, in ascending order."""
    load_error: str | None = None
    """Triton's reasons for failing to load versions of the model or other models of its repository; None if all were
    loaded."""
    stub_exit: str | None = None
    """Exit status of a Python stub process of the pod that has ended, in words; None if all stub processes are
    running."""
    companions: tuple[str, ...] = ()
    """Names of the other models of the pod that are ready, sorted."""


def parse(document: Any, model: str, *, pod: str) -> RepositoryIndex:
    """Parse the entry of `model` in the repository index of `pod`, and the load errors of the pod's other models.

    The other models are steps of an ensemble, or models that `model` calls.

    Raises:
        TritonError: the document is not a repository index.
    """
    if not isinstance(document, list):
        raise TritonError("the repository index is not a list")
    versions: list[str] = []
    errors: list[str] = []
    companion_errors: list[str] = []
    companions: set[str] = set()
    stub_exit: str | None = None
    for entry in document:
        if not isinstance(entry, dict):
            continue
        name = str(entry.get("name"))
        if name.startswith(STUB_EXIT):
            stub_exit = _stub_exit(name.removeprefix(STUB_EXIT)[:64])
            continue
        if entry.get("state") == "READY":
            if name == model:
                versions.append(str(entry.get("version", "")))
            else:
                companions.add(name)
        elif (error := _load_error(entry, pod)) and name == model:
            errors.append(error)
        elif error:
            companion_errors.append(f"model {name[:_MAX_NAME_CHARS]} of the repository: {error}")
    if companion_errors:
        # An ensemble has no state if one of its steps isn't loaded.
        errors = [error for error in errors if error != _refusal(pod)]
    error = "\n".join(dict.fromkeys(companion_errors + errors))
    ended = f" ({stub_exit})" if stub_exit and DEAD_STUB.search(error) else ""
    error = error[: MAX_ERROR_CHARS - len(ended)] + ended
    return RepositoryIndex(
        tuple(sorted(versions, key=lambda v: (len(v), v))), error or None, stub_exit, tuple(sorted(companions))
    )


def _load_error(entry: Mapping[str, Any], pod: str) -> str:
    """Return the reason why the model of an index entry couldn't be loaded; empty if it was loaded or unloaded."""
    if not entry.get("state"):
        return _refusal(pod)
    reason = str(entry.get("reason") or "").strip()
    return reason if entry.get("state") == "UNAVAILABLE" and reason != "unloaded" else ""


def _refusal(pod: str) -> str:
    # Triton opens its port only after all models have been loaded, so a model without a state is not waiting to be loaded.
    return (
        "Triton's index lists the model without a state: Triton rejected its configuration; "
        f"see the log of container triton in pod {pod}"
    )


def _stub_exit(ended: str) -> str:
    """Return in words how a process ended: `exit-CODE` or `signal-NUMBER`, with `.oom` after an OOM kill."""
    how, _, cause = ended.partition(".")
    kind, _, number = how.partition("-")
    text = f"exited with code {number}" if kind == "exit" else f"was ended by signal {number}"
    killed = "; a process of the container was killed for lack of memory (OOM)" if cause == "oom" else ""
    return f"a Python stub process {text}{killed}"
