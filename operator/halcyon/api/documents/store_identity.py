"""Identity with which a pod downloads its model: an argument of the fetcher, written by the renderer.

The module uses only the standard library, because the fetcher delays every cold start.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class StoreIdentity:
    """Identity in a cloud for which the token of the pod's service account is exchanged."""

    cloud: Literal["aws", "azure", "google"]
    name: str
    """ARN of the role, client id, or resource name of the workload identity pool's provider."""
    also: str = ""
    """Id of the Entra tenant, or e-mail address of the Google service account to act as; empty if there is none."""
    endpoint: str | None = None
    """URL of the token service; None for the cloud's own."""

    @classmethod
    def from_json(cls, text: str) -> StoreIdentity:
        """Parse the argument.

        Raises:
            ValueError: the text was not written by `to_json`.
        """
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(str(error)) from error

    def to_json(self) -> str:
        """Return the argument."""
        return json.dumps(self.__dict__)

    @property
    def audience(self) -> str:
        """Audience that the cloud requires in the service account's token."""
        return {
            "aws": "sts.amazonaws.com",
            "azure": "api://AzureADTokenExchange",
            "google": f"//iam.googleapis.com/{self.name}",
        }[self.cloud]

    def servers(self, region: str) -> tuple[str, ...]:
        """Return the URLs of the token services. The first of them receives the service account's token."""
        if self.endpoint is not None:
            return (self.endpoint,)
        if self.cloud == "aws":
            return (f"https://sts.{region}.amazonaws.com",)
        if self.cloud == "azure":
            return ("https://login.microsoftonline.com",)
        impersonation = ("https://iamcredentials.googleapis.com",) if self.also else ()
        return ("https://sts.googleapis.com", *impersonation)
