"""Cloud identity with which a pod downloads its model. The renderer passes it to the fetcher as an argument.

The module uses only the standard library, because slow imports of the fetcher would delay every cold start.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

_AWS_DOMAINS = {"cn": "amazonaws.com.cn", "eusc": "amazonaws.eu"}
"""DNS domain of each AWS partition except the default one, by the prefix of the partition's region names."""


def aws_server(service: str, region: str) -> str:
    """Return the URL of an AWS service in a region."""
    return f"https://{service}.{region}.{_AWS_DOMAINS.get(region.partition('-')[0], 'amazonaws.com')}"


@dataclass(frozen=True)
class StoreIdentity:
    """Cloud identity for which the token of the pod's service account is exchanged."""

    cloud: Literal["aws", "azure", "google"]
    name: str
    """ARN of the AWS role, client ID of the Entra application, or name of Google's workload identity provider."""
    also: str = ""
    """Id of the Entra tenant, or e-mail address of the Google service account to impersonate; empty if there is none."""
    endpoint: str | None = None
    """URL of the token service. None means the cloud's own token service."""

    @classmethod
    def from_json(cls, text: str) -> StoreIdentity:
        """Parse the identity from the fetcher's argument.

        Raises:
            ValueError: the text was not written by `to_json`.
        """
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(str(error)) from error

    def to_json(self) -> str:
        """Return the identity as an argument for the fetcher."""
        return json.dumps(self.__dict__)

    @property
    def audience(self) -> str:
        """Audience that the cloud requires in the token of the pod's service account."""
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
            return (aws_server("sts", region),)
        if self.cloud == "azure":
            return ("https://login.microsoftonline.com",)
        impersonation = ("https://iamcredentials.googleapis.com",) if self.also else ()
        return ("https://sts.googleapis.com", *impersonation)
