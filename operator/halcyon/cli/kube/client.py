"""The cluster as the commands of people see it: objects read, listed and changed, and errors that say what to do.

Objects are plain dicts, and of the `kubernetes` package only configuration, credentials and transport are used: no field is
dropped that it doesn't know. Not here: what is told of them, and watching (`watching`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import yaml

from halcyon.api.types import GROUP, KIND, PLURAL
from halcyon.cli.errors import ClusterError
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind

Object = Mapping[str, Any]

TIMEOUT_S = 10.0
MAX_NAMES = 10
"""Names that are listed where the one asked for doesn't exist."""
_CHUNK = 500
_MERGE, _PLAIN, _APPLY = "application/merge-patch+json", "application/json", "application/apply-patch+yaml"
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_CONNECTION = re.compile(r"^HTTPS?Connection(Pool)?\([^)]*\): ")
"""What urllib3 puts before the reason."""


@dataclass(frozen=True)
class Target:
    """Which cluster, and which namespace in it. What is None is the kubeconfig's."""

    command: str
    """Whose example a wrong name is answered with, such as `explain`."""
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    timeout_s: float = TIMEOUT_S
    """Of each request."""


class Cluster:
    """The cluster of a kubeconfig, or the one that this pod runs in.

    The `kubernetes` package is imported here: half a second that `--help` and wrong usage needn't wait for.

    Raises:
        ClusterError: where there is no usable configuration.
    """

    def __init__(self, target: Target) -> None:
        """Read the configuration; nothing is asked of the cluster yet."""
        from kubernetes import client, config  # noqa: PLC0415  # see above

        settings = client.Configuration()
        paths = str(target.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config").split(os.pathsep)
        files = [Path(part).expanduser() for part in paths if part]
        kubeconfig = os.pathsep.join(map(str, files))
        exists = any(file.is_file() for file in files)
        if not exists and (target.kubeconfig or target.context or "KUBERNETES_SERVICE_HOST" not in os.environ):
            raise ClusterError(
                f"no cluster: there is no kubeconfig {kubeconfig}; give one that is there, for example --kubeconfig cluster.yaml"
            )
        try:
            if not exists:
                config.load_incluster_config(settings)
                own_namespace = _POD_NAMESPACE.read_text().strip()
            else:
                contexts, active = config.list_kube_config_contexts(kubeconfig)
                chosen = _select_context(contexts, active, target.context, kubeconfig)
                config.load_kube_config(
                    kubeconfig, context=target.context, client_configuration=settings, persist_config=False
                )
                own_namespace = chosen["context"].get("namespace", "default")
        except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise ClusterError(
                f"no cluster: kubeconfig {kubeconfig} can't be used: {reason}; kubectl config view shows what is in it"
            ) from None
        settings.retries = False  # urllib3's own would make three attempts, with a warning for each
        self.target = target
        self.kubeconfig = kubeconfig if exists else None
        """Files of the kubeconfig, as $KUBECONFIG has them; None in a pod."""
        self.namespace = target.namespace or own_namespace
        self.host = str(settings.host).rstrip("/")
        self.api = client.ApiClient(settings)

    def in_namespace(self, namespace: str) -> Cluster:
        """The same cluster, with its objects of another namespace."""
        other = copy(self)
        other.namespace = namespace
        return other

    # Objects.

    def model(self, name: str) -> Object:
        """The ModelDeployment of this name.

        Raises:
            ClusterError: where there is none, where it may not be read, and where no API server answers.
        """
        model = self.find(kinds.MODEL_DEPLOYMENT, name)
        if model is None:
            raise ClusterError(self._not_found_message(name))
        return model

    def models(self, *, all_namespaces: bool = False) -> list[Object]:
        """All ModelDeployments of the namespace, or of the cluster.

        Raises:
            ClusterError: as `model`, and where the cluster has no CRD.
        """
        models = self.items(kinds.MODEL_DEPLOYMENT, all_namespaces=all_namespaces)
        if models is None:
            raise ClusterError(self._no_crd_message())
        return models

    def patch(self, name: str, body: Object) -> Object:
        """Merge this into a ModelDeployment; gives the object as it is then.

        Raises:
            ClusterError: as `model`, and where it may not be changed.
        """
        patched = self._json("PATCH", kinds.MODEL_DEPLOYMENT.path(self.namespace, name), body=body)
        if patched is None:
            raise ClusterError(self._not_found_message(name))
        return patched

    def annotate(self, name: str, annotations: Mapping[str, str | None]) -> Object:
        """Set annotations of a ModelDeployment, take away those that are None; gives the object."""
        return self.patch(name, {"metadata": {"annotations": dict(annotations)}})

    def dry_run(self, method: Literal["POST", "PUT", "PATCH"], kind: Kind, name: str, body: Object) -> Object | None:
        """What the API server would make of this write, of the operator's own apply where it is PATCH; None where you may not ask.

        Raises:
            ClusterError: it would refuse it.
        """
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        query |= {"fieldManager": "halcyon", "force": "true"} if method == "PATCH" else {}
        path = kind.path(self.namespace, name)
        content = _APPLY if method == "PATCH" else _PLAIN
        status, response, reason = self._send(method, path, query, body, content=content)
        if status == 404 and method == "POST":
            raise ClusterError(self._no_crd_message())
        if status == 403 and b" cannot " in response:  # by its role, and not by a policy
            return None
        if status >= 400:
            raise ClusterError(self._error_message(status, response, reason, f"{method.lower()} on {kind.plural}"))
        stored: Object = json.loads(response)
        return stored

    def find(self, kind: Kind, name: str) -> Object | None:
        """An object of the namespace, or of the cluster where its kind has none; None where there is none.

        Raises:
            ClusterError: where it may not be read, and where no API server answers.
        """
        return self._json("GET", kind.path(self.namespace if kind.namespaced else "", name))

    def items(
        self, kind: Kind, *, selector: str = "", all_namespaces: bool = False, fields: str = ""
    ) -> list[Object] | None:
        """All objects of a kind, read in chunks; None where the cluster doesn't know the kind.

        Raises:
            ClusterError: as `find`.
        """
        query = {"limit": str(_CHUNK), "labelSelector": selector, "fieldSelector": fields}
        path = kind.path("" if all_namespaces or not kind.namespaced else self.namespace)
        items: list[Object] = []
        while True:
            page = self._json("GET", path, {key: value for key, value in query.items() if value})
            if page is None:
                return None
            items += [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page.get("items") or ()]
            query["continue"] = (page.get("metadata") or {}).get("continue") or ""
            if not query["continue"]:
                return items

    def log(self, pod: str, container: str, *, lines: int, previous: bool = False) -> str | None:
        """The end of a container's log; None where there is none.

        Raises:
            ClusterError: as `find`.
        """
        query = {"container": container, "tailLines": str(lines)} | ({"previous": "true"} if previous else {})
        status, content, reason = self._send("GET", kinds.POD.path(self.namespace, pod, "log"), query)
        if status in {400, 404}:  # the container hasn't started, or there was none before
            return None
        if status >= 400:
            raise ClusterError(
                self._error_message(status, content, reason, f"get pods/log in namespace {self.namespace}")
            )
        return content.decode(errors="replace")

    # Requests.

    def _json(self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None) -> Object | None:
        status, content, reason = self._send(method, path, query, body)
        if status == 404:
            return None
        if status >= 400:
            verbs = "get and list" if body is None else "get and patch"
            resource = path.partition(f"namespaces/{self.namespace}/")[2].partition("/")[0] or path.rpartition("/")[2]
            group = f".{GROUP}" if resource == PLURAL else ""
            permission = f"{verbs} on {resource}{group} in namespace {self.namespace}"
            raise ClusterError(self._error_message(status, content, reason, permission))
        try:
            document = json.loads(content)
        except ValueError:
            document = None
        if not isinstance(document, Mapping):
            raise ClusterError(
                f"what answers at {self.host} is no Kubernetes API server; kubectl cluster-info asks it too"
            )
        return document

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        content: str = _MERGE,
    ) -> tuple[int, bytes, str]:
        """(status, content, its reason)."""
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415  # loaded by now
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        headers = {"Accept": f"{_PLAIN}, */*", "Content-Type": _PLAIN if body is None else content}
        url = f"{self.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            self.api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
            response = self.api.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=self.target.timeout_s
            )
            return int(response.status), bytes(response.read()), str(response.reason)
        except ApiException as error:  # the package's own, for TLS
            raise ClusterError(self._unreachable_message(error.reason)) from None
        except (HTTPError, OSError) as error:
            raise ClusterError(self._unreachable_message(error)) from None

    # What is said of failures.

    def _no_crd_message(self) -> str:
        return (
            f"the cluster at {self.host} knows no {KIND}: its CRD is absent; install Halcyon, for example helm install halcyon "
            "charts/halcyon -n halcyon-system --create-namespace"
        )

    def _not_found_message(self, name: str) -> str:
        models = self.items(kinds.MODEL_DEPLOYMENT)
        if models is None:
            return self._no_crd_message()
        names = [str(item["metadata"]["name"]) for item in models]
        problem = f"there is no {KIND} {name} in namespace {self.namespace}"
        if not names:
            return f"{problem}, nor any other; kubectl get mdep -A lists those of all namespaces, -n chooses one"
        names.sort(key=lambda other: (-SequenceMatcher(None, name, other).ratio(), other))
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        shown = ", ".join(names[:MAX_NAMES])
        return f"{problem}; there are {shown}{more}, for example halcyon {self.target.command} {names[0]}"

    def _error_message(self, status: int, content: bytes, reason: str, permission: str) -> str:
        try:
            message = str(json.loads(content)["message"])
        except (ValueError, TypeError, KeyError):
            message = reason
        if status == 401:
            return f"no access: the cluster at {self.host} takes none of the kubeconfig's credentials ({message}); log in anew, or choose another context"
        if status == 403:
            return f"no access: {message}; ask for the verbs {permission}"
        if status == 422:
            return f"the cluster at {self.host} takes no such change: {message}"
        return f"the cluster at {self.host} answers {status}: {message}; try again, or ask kubectl get mdep -n {self.namespace}"

    def _unreachable_message(self, error: object) -> str:
        reason = _CONNECTION.sub("", " ".join(str(error).split()))
        return f"no cluster: {self.host} can't be reached ({reason}); start it, or choose another, for example --kubeconfig FILE"


def _select_context(contexts: Sequence[Object], active: Object, name: str | None, kubeconfig: str) -> Object:
    if name is None:
        return active
    for context in contexts:
        if context["name"] == name:
            return context
    names = sorted(str(context["name"]) for context in contexts)
    raise ClusterError(
        f"no cluster: kubeconfig {kubeconfig} has no context {name}; it has {', '.join(names)}, for example --context {names[0]}"
    )
