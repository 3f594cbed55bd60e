"""Exceptions of downloads from model registries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class RegistryError(Exception):
    """Exception for a registry's response that denies a request."""

    status: int
    code: str
    """Name of the error in the registry's response; empty if the response has none."""
    message: str
    """Message of the registry, without the credentials."""

    def failure(self, url: str, registry: str, needed: str) -> RegistryFailure:
        """Return the denial as an exception for the model's owner. `needed` describes the credentials."""
        if self.status not in {401, 403}:
            return RegistryFailure(f"{url}: status {self.status}: {self.message}")
        field = "spec.model.source.credentials.secretName"
        return RegistryFailure(
            f"{url}: {registry} denied access; set {field} to a Secret with {needed}: {self.message}"
        )


class TransientError(Exception):
    """Exception for a request that failed but may succeed if it is retried."""

    def __init__(self, message: str, *, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s
        """Time that the registry requests before the next attempt, in seconds; 0 if it requests none."""


class RegistryFailure(Exception):  # noqa: N818  # RegistryError is the registry's response
    """Exception for a model that cannot be downloaded from the registry. The message is for the model's owner."""

    def __init__(self, message: str, *, is_missing: bool = False) -> None:
        super().__init__(message)
        self.is_missing = is_missing
        """Whether the model doesn't exist or has no valid layout. If false, its download failed."""
