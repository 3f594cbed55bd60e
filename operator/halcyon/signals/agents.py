"""Identity of the balancers' agents, and the interfaces with which the report collector checks it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from halcyon.kube.auth.callers import AgentIdentity, service_account

SUFFIX = "-balancer"
"""Suffix of the name of the ServiceAccount of a model's balancers."""


class Authenticator(Protocol):
    """Callable that authenticates the bearer token of an agent."""

    async def __call__(self, token: str, audience: str) -> AgentIdentity | None:
        """Return the identity of the agent with this token, or None if the token is not valid for this audience.

        Raises:
            Exception: the token can't be validated at present.
        """


class ExistingModels(Protocol):
    """Interface to the existing models and their pods."""

    @property
    def synced(self) -> bool:
        """Whether the lists of models and pods are complete."""

    def has_model(self, namespace: str, name: str) -> bool:
        """Return whether a ModelDeployment with this name exists."""

    def has_pod(self, namespace: str, name: str, pod: str) -> bool:
        """Return whether the model has a server pod with this name."""


class Sender(NamedTuple):
    """Agent that sends reports. It runs in a balancer pod of a model."""

    namespace: str
    name: str
    agent: str
    """Name of the agent's pod."""


def model_of_account(username: str) -> tuple[str, str] | None:
    """Return the model whose balancers use this ServiceAccount, as (namespace, name).

    Return None if no model's balancers use it.
    """
    account = service_account(username)
    if account is None or not account.name.endswith(SUFFIX):
        return None
    name = account.name.removesuffix(SUFFIX)
    return (account.namespace, name) if name else None
