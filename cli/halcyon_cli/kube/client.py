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
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon_cli.errors import ClusterError

Object = Mapping[str, Any]

TIMEOUT_S = 10.0
SHOWN = 10
"""Names that are listed where the one asked for doesn't exist."""
_CHUNK = 500
_MERGE, _PLAIN, _APPLY = "application/merge-patch+json", "application/json", "application/apply-patch+yaml"
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_CONNECTION = re.compile(r"^HTTPS?Connection(Pool)?\([^)]*\): ")
"""What urllib3 puts before the reason."""


@dataclass(frozen=True)
class Place:
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

    def __init__(self, place: Place) -> None:
        """Read the configuration; nothing is asked of the cluster yet."""
        from kubernetes import client, config  # noqa: PLC0415  # see above

        settings = client.Configuration()
        named = str(place.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config").split(os.pathsep)
        files = [Path(part).expanduser() for part in named if part]
        given = os.pathsep.join(map(str, files))
        there = any(file.is_file() for file in files)
        if not there and (place.kubeconfig or place.context or "KUBERNETES_SERVICE_HOST" not in os.environ):
            raise ClusterError(
                f"no cluster: there is no kubeconfig {given}; give one that is there, for example --kubeconfig cluster.yaml"
            )
        try:
            if not there:
                config.load_incluster_config(settings)
                own = _POD_NAMESPACE.read_text().strip()
            else:
                contexts, active = config.list_kube_config_contexts(given)
                chosen = _chosen(contexts, active, place.context, given)
                config.load_kube_config(
                    given, context=place.context, client_configuration=settings, persist_config=False
                )
                own = chosen["context"].get("namespace", "default")
        except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError) as error:
            said = " ".join(str(error).split())
            raise ClusterError(
                f"no cluster: kubeconfig {given} can't be used: {said}; kubectl config view shows what is in it"
            ) from None
        settings.retries = False  # urllib3's own would make three attempts, with a warning for each
        self.place = place
        self.kubeconfig = given if there else None
        """Files of the kubeconfig, as $KUBECONFIG has them; None in a pod."""
        self.namespace = place.namespace or own
        self.host = str(settings.host).rstrip("/")
        self.api = client.ApiClient(settings)

    def within(self, namespace: str) -> Cluster:
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
        found = self.find(kinds.MODEL_DEPLOYMENT, name)
        if found is None:
            raise ClusterError(self._missing(name))
        return found

    def models(self, *, everywhere: bool = False) -> list[Object]:
        """All ModelDeployments of the namespace, or of the cluster.

        Raises:
            ClusterError: as `model`, and where the cluster has no CRD.
        """
        found = self.items(kinds.MODEL_DEPLOYMENT, everywhere=everywhere)
        if found is None:
            raise ClusterError(self._no_crd())
        return found

    def patch(self, name: str, body: Object) -> Object:
        """Merge this into a ModelDeployment; gives the object as it is then.

        Raises:
            ClusterError: as `model`, and where it may not be changed.
        """
        found = self._json("PATCH", kinds.MODEL_DEPLOYMENT.path(self.namespace, name), body=body)
        if found is None:
            raise ClusterError(self._missing(name))
        return found

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
        status, answer, said = self._send(method, path, query, body, content=content)
        if status == 404 and method == "POST":
            raise ClusterError(self._no_crd())
        if status == 403 and b" cannot " in answer:  # by its role, and not by a policy
            return None
        if status >= 400:
            raise ClusterError(self._refused(status, answer, said, f"{method.lower()} on {kind.plural}"))
        found: Object = json.loads(answer)
        return found

    def find(self, kind: Kind, name: str) -> Object | None:
        """An object of the namespace, or of the cluster where its kind has none; None where there is none.

        Raises:
            ClusterError: where it may not be read, and where no API server answers.
        """
        return self._json("GET", kind.path(self.namespace if kind.namespaced else "", name))

    def items(
        self, kind: Kind, *, selector: str = "", everywhere: bool = False, fields: str = ""
    ) -> list[Object] | None:
        """All objects of a kind, read in chunks; None where the cluster doesn't know the kind.

        Raises:
            ClusterError: as `find`.
        """
        query = {"limit": str(_CHUNK), "labelSelector": selector, "fieldSelector": fields}
        path = kind.path("" if everywhere or not kind.namespaced else self.namespace)
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
        status, content, said = self._send("GET", kinds.POD.path(self.namespace, pod, "log"), query)
        if status in {400, 404}:  # the container hasn't started, or there was none before
            return None
        if status >= 400:
            raise ClusterError(self._refused(status, content, said, f"get pods/log in namespace {self.namespace}"))
        return content.decode(errors="replace")

    # Requests.

    def _json(self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None) -> Object | None:
        status, content, said = self._send(method, path, query, body)
        if status == 404:
            return None
        if status >= 400:
            verbs = "get and list" if body is None else "get and patch"
            resource = path.partition(f"namespaces/{self.namespace}/")[2].partition("/")[0] or path.rpartition("/")[2]
            group = f".{GROUP}" if resource == PLURAL else ""
            asked = f"{verbs} on {resource}{group} in namespace {self.namespace}"
            raise ClusterError(self._refused(status, content, said, asked))
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if not isinstance(found, Mapping):
            raise ClusterError(
                f"what answers at {self.host} is no Kubernetes API server; kubectl cluster-info asks it too"
            )
        return found

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
            answer = self.api.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=self.place.timeout_s
            )
            return int(answer.status), bytes(answer.read()), str(answer.reason)
        except ApiException as error:  # the package's own, for TLS
            raise ClusterError(self._unreachable(error.reason)) from None
        except (HTTPError, OSError) as error:
            raise ClusterError(self._unreachable(error)) from None

    # What is said of failures.

    def _no_crd(self) -> str:
        return (
            f"the cluster at {self.host} knows no {KIND}: its CRD is absent; install Halcyon, for example helm install halcyon "
            "charts/halcyon -n halcyon-system --create-namespace"
        )

    def _missing(self, name: str) -> str:
        found = self.items(kinds.MODEL_DEPLOYMENT)
        if found is None:
            return self._no_crd()
        names = [str(item["metadata"]["name"]) for item in found]
        lacking = f"there is no {KIND} {name} in namespace {self.namespace}"
        if not names:
            return f"{lacking}, nor any other; kubectl get mdep -A lists those of all namespaces, -n chooses one"
        names.sort(key=lambda other: (-SequenceMatcher(None, name, other).ratio(), other))
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        listed = ", ".join(names[:SHOWN])
        return f"{lacking}; there are {listed}{more}, for example halcyon {self.place.command} {names[0]}"

    def _refused(self, status: int, content: bytes, reason: str, asked: str) -> str:
        try:
            said = str(json.loads(content)["message"])
        except (ValueError, TypeError, KeyError):
            said = reason
        if status == 401:
            return f"no access: the cluster at {self.host} takes none of the kubeconfig's credentials ({said}); log in anew, or choose another context"
        if status == 403:
            return f"no access: {said}; ask for the verbs {asked}"
        if status == 422:
            return f"the cluster at {self.host} takes no such change: {said}"
        return f"the cluster at {self.host} answers {status}: {said}; try again, or ask kubectl get mdep -n {self.namespace}"

    def _unreachable(self, error: object) -> str:
        said = _CONNECTION.sub("", " ".join(str(error).split()))
        return f"no cluster: {self.host} can't be reached ({said}); start it, or choose another, for example --kubeconfig FILE"


def _chosen(contexts: Sequence[Object], active: Object, wanted: str | None, given: str) -> Object:
    if wanted is None:
        return active
    for context in contexts:
        if context["name"] == wanted:
            return context
    names = sorted(str(context["name"]) for context in contexts)
    raise ClusterError(
        f"no cluster: kubeconfig {given} has no context {wanted}; it has {', '.join(names)}, for example --context {names[0]}"
    )
