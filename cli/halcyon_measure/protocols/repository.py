"""Client for Triton's model repository extension: states of models, and changes of a model's configuration.

It always uses HTTP.

A server with explicit model control loads and unloads models on request. Other servers only list them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from halcyon_measure.errors import MeasureError, TargetError
from halcyon_measure.protocols import connect
from halcyon_measure.protocols.target import Target

_UNLOADED = "unloaded"
"""Reason that the repository index shows for a model that was unloaded on request."""
_REJECTED = "failed to poll from model repository"
_UNLOAD_POLL_S = 0.02
_UNLOAD_WITHIN_S = 15.0


class LoadError(MeasureError):
    """The model can't be loaded with a configuration. The message is Triton's."""


class Repository:
    """Model repository of a server, for the model of a target."""

    def __init__(self, target: Target, *, load_within_s: float = 600.0) -> None:
        # By default, Triton's gRPC port is the one after the HTTP port.
        port = target.port - 1 if target.transport == "grpc" else target.port
        self._target = replace(target, transport="http", port=port, timeout_s=load_within_s)
        self._model = quote(target.model, safe="")

    def config(self) -> dict[str, Any]:
        """Return the configuration with which the server has loaded the model.

        Raises:
            TargetError: the server doesn't answer, or hasn't loaded the model.
        """
        config = connect.fetch(self._target, f"/v2/models/{self._model}/config")
        if not isinstance(config, dict):
            raise TargetError(f"{self._target.url} has no configuration of {self._target.model}: {str(config)[:120]}")
        return config

    def is_ready(self) -> bool:
        """Return whether the server responds and the model is loaded."""
        try:
            status, _ = connect.exchange(replace(self._target, timeout_s=5.0), "GET", f"/v2/models/{self._model}/ready")
        except TargetError:
            return False
        return status == 200

    def failure(self) -> str:
        """Return the reason why the server couldn't load the model; empty if it could or has no repository index."""
        try:
            return next((why for state, why in self._states() if state == "UNAVAILABLE" and why != _UNLOADED), "")
        except TargetError:
            return ""

    def load(self, config: Mapping[str, Any]) -> None:
        """Unload the model, then load it with this configuration instead of the one in the repository.

        The model is unloaded first, so that two configurations don't need memory at the same time. If a Python model
        has raised exceptions, Triton may never finish unloading it. In this case, the new configuration is loaded while
        the old one is still in memory.

        Raises:
            LoadError: the model can't be loaded with this configuration, and is now unloaded.
            TargetError: the server doesn't respond, or has no explicit model control.
        """
        self.unload()
        document = {"parameters": {"config": json.dumps(config)}}
        status, body = self._post("load", document)
        if status >= 400:
            message = _message(body)
            # Triton gives the error in a configuration only in its log.
            hint = (
                "; it rejects the configuration, and the server's log has the reason"
                if message.endswith(_REJECTED)
                else ""
            )
            raise LoadError(message + hint)

    def unload(self) -> bool:
        """Unload the model, and wait until it is gone, because Triton responds earlier. Return whether it is gone.

        Raises:
            TargetError: the server doesn't respond, or has no explicit model control.
        """
        status, body = self._post("unload", {})
        if status >= 400:
            raise TargetError(f"{self._target.url} doesn't unload {self._target.model}: {status}: {_message(body)}")
        end = time.monotonic() + _UNLOAD_WITHIN_S
        while any(state not in {"UNAVAILABLE", ""} for state, _ in self._states()):
            if time.monotonic() > end:
                return False
            time.sleep(_UNLOAD_POLL_S)
        return True

    def _states(self) -> list[tuple[str, str]]:
        """Return the state and the reason of each version of the model; both are empty if the model was never loaded.

        Raises:
            TargetError: the server doesn't respond, or has no repository index.
        """
        status, body = connect.exchange(self._target, "POST", "/v2/repository/index", {})
        if status >= 400:
            raise TargetError(f"{self._target.url} has no repository index: {status}: {_message(body)}")
        try:
            return [
                (str(entry.get("state", "")), str(entry.get("reason", "")))
                for entry in json.loads(body)
                if entry["name"] == self._target.model
            ]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise TargetError(
                f"{self._target.url} has no repository index: {body[:120].decode(errors='replace')}"
            ) from None

    def _post(self, action: str, document: Mapping[str, Any]) -> tuple[int, bytes]:
        return connect.exchange(self._target, "POST", f"/v2/repository/models/{self._model}/{action}", document)


def _message(body: bytes) -> str:
    try:
        message = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        message = body[:400].decode(errors="replace")
    return " ".join(str(message).split()) or "no message"
