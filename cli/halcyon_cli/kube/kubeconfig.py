"""Kubeconfig files: the cluster, the namespace and the credentials of a context. Out of scope: requests (`transport`).

Several files are merged as in kubectl: for each name, the first file with such an entry is used, and the first current
context applies. Relative paths are relative to the file that contains them.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import yaml

from halcyon_cli import manifest_loader

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder with the service account's credentials in a pod."""
_HEADER_CHARACTERS = "!#$&'*+^`|"
"""Characters in the name of a header that are not escaped, besides letters, digits and `-._~`."""
_PLUGIN_SETTINGS = "client.authentication.k8s.io/exec"
"""Name of the extension of a cluster in a kubeconfig that contains settings for credential plugins."""
_TYPES: Mapping[str, Mapping[type, Sequence[str]]] = {
    "contexts[].context": {str: ("cluster", "user", "namespace")},
    "clusters[].cluster": {
        str: ("server", "certificate-authority", "certificate-authority-data", "tls-server-name", "proxy-url"),
        bool: ("insecure-skip-tls-verify",),
        list: ("extensions",),
    },
    "users[].user": {
        str: (
            *("token", "tokenFile", "username", "password", "as", "as-uid"),
            *("client-certificate", "client-certificate-data", "client-key", "client-key-data"),
        ),
        list: ("as-groups",),
        Mapping: ("as-user-extra", "auth-provider", "exec"),
    },
    "users[].user.exec": {
        str: ("command", "apiVersion", "interactiveMode", "installHint"),
        bool: ("provideClusterInfo",),
        list: ("args", "env"),
    },
}
"""Required types of the fields that are read, as in kubectl. The check matters because the text `false` would count as
true."""
_TYPE_NAMES: Mapping[type, str] = {
    str: "a string; quote it",
    bool: "true or false, without quotes",
    list: "a list",
    Mapping: "a mapping",
}


class KubeconfigError(ValueError):
    """The kubeconfig can't be used. The message names the field and the reason."""


class UnknownContextError(KubeconfigError):
    """No kubeconfig contains this context."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        """Create the error. `names` are the names of all contexts."""
        super().__init__(f"no context {name}")
        self.names = names


@dataclass(frozen=True)
class ExecPlugin:
    """Program that prints credentials: a credential plugin, as in kubectl."""

    command: str
    """Name of the program, or its absolute path."""
    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    api_version: str
    """Version of the ExecCredential that the program reads and prints, such as `client.authentication.k8s.io/v1`."""
    interactive: bool
    """Whether the program may read from the terminal."""
    install_hint: str
    cluster: Mapping[str, Any] | None
    """Description of the cluster for the program; None if it doesn't need one."""


@dataclass(frozen=True)
class Access:
    """Settings for sending requests to a cluster."""

    server: str
    """URL of the API server, without a trailing slash."""
    namespace: str = "default"
    ca: str | Path | None = None
    """Certificates of trusted authorities as PEM, or the path of their file; None for the system's authorities."""
    verified: bool = True
    """Whether the server's certificate is verified."""
    server_name: str | None = None
    """Name in the server's certificate, if it isn't the host of the URL."""
    proxy: str | None = None
    """URL of a proxy; None to use the proxy from the environment, if there is one."""
    certificate: bytes | Path | None = None
    """Client certificate as PEM, or the path of its file."""
    key: bytes | Path | None = None
    """Key of the client certificate as PEM, or the path of its file."""
    token: str | Path | None = None
    """Bearer token, or the path of its file, which is read before each request."""
    basic: tuple[str, str] | None = None
    """User and password for basic authentication."""
    plugin: ExecPlugin | None = None
    impersonated: tuple[tuple[str, str], ...] = ()
    """Headers for the impersonation of another user."""


def in_cluster() -> Access:
    """Return the access of a pod to its own cluster, with the pod's service account.

    Raises:
        KubeconfigError: this process doesn't run in a pod with a service account.
    """
    try:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except (KeyError, OSError) as error:
        raise KubeconfigError(f"the pod has no service account: {error}") from None
    host = f"[{host}]" if ":" in host else host
    return Access(f"https://{host}:{port}", namespace, ca=SERVICE_ACCOUNT / "ca.crt", token=SERVICE_ACCOUNT / "token")


def read(files: Sequence[Path], context: str | None = None) -> Access:
    """Return the access for a context, or for the current one. Files that don't exist are skipped.

    Raises:
        KubeconfigError: a file is invalid, or the context is incomplete.
        UnknownContextError: there is no such context.
    """
    sections: dict[str, dict[str, tuple[Mapping[str, Any], Path]]] = {"contexts": {}, "clusters": {}, "users": {}}
    current = ""
    for file in files:
        if file.is_file():
            document = _document(file)
            current = current or str(document.get("current-context") or "")
            for section, entries in sections.items():
                for entry in _entries(document, section):
                    entries.setdefault(str(entry["name"]), (_mapping(entry, section.removesuffix("s")), file.parent))
    name = context or current
    if not name:
        raise KubeconfigError("it has no current-context; name one with --context")
    if name not in sections["contexts"]:
        raise UnknownContextError(name, sorted(sections["contexts"]))
    chosen = sections["contexts"][name][0]
    _check(chosen, "contexts[].context")
    cluster, cluster_folder = _named(sections["clusters"], chosen, "cluster", name)
    user, user_folder = _named(sections["users"], chosen, "user", name) if chosen.get("user") else ({}, cluster_folder)
    return _access(str(chosen.get("namespace") or "default"), cluster, cluster_folder, user, user_folder)


def _access(
    namespace: str, cluster: Mapping[str, Any], cluster_folder: Path, user: Mapping[str, Any], user_folder: Path
) -> Access:
    _check(cluster, "clusters[].cluster")
    _check(user, "users[].user")
    ca = _data(cluster, "certificate-authority", cluster_folder)
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("http://", "https://")) or not _is_url(server):
        raise KubeconfigError(
            f"clusters[].cluster.server is {server!r}; it must be a URL, for example https://10.0.0.1:6443"
        )
    token: str | Path | None = None
    if user.get("tokenFile"):
        token = user_folder / str(user["tokenFile"])
    elif user.get("token"):
        token = str(user["token"])
    elif user.get("auth-provider"):
        token = _provider_token(_mapping(user, "auth-provider"))
    return Access(
        server,
        namespace,
        ca=ca.decode() if isinstance(ca, bytes) else ca,
        verified=not cluster.get("insecure-skip-tls-verify"),
        server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url"),
        certificate=_data(user, "client-certificate", user_folder),
        key=_data(user, "client-key", user_folder),
        token=token,
        basic=(str(user["username"]), str(user.get("password") or "")) if user.get("username") else None,
        plugin=_plugin(_mapping(user, "exec"), cluster, ca, user_folder) if user.get("exec") else None,
        impersonated=_impersonated(user),
    )


def _plugin(fields: Mapping[str, Any], cluster: Mapping[str, Any], ca: bytes | Path | None, folder: Path) -> ExecPlugin:
    _check(fields, "users[].user.exec")
    command = str(fields.get("command") or "")
    environment = fields.get("env") or ()
    if not all(isinstance(variable, Mapping) and variable.get("name") for variable in environment):
        raise KubeconfigError("users[].user.exec.env must be a list of objects with a name and a value")
    if not command:
        raise KubeconfigError("users[].user.exec has no command")
    if "/" in command:
        command = str(folder / command)
    return ExecPlugin(
        command,
        tuple(str(word) for word in fields.get("args") or ()),
        tuple((str(variable["name"]), str(variable.get("value") or "")) for variable in environment),
        str(fields.get("apiVersion") or "client.authentication.k8s.io/v1"),
        interactive=fields.get("interactiveMode") != "Never",
        install_hint=" ".join(str(fields.get("installHint") or "").split()),
        cluster=_description(cluster, ca) if fields.get("provideClusterInfo") else None,
    )


def _description(cluster: Mapping[str, Any], ca: bytes | Path | None) -> dict[str, Any]:
    """Return the cluster's description for an ExecCredential, with certificate data and the plugin's settings."""
    description = {name: cluster[name] for name in cluster if name not in {"extensions", "certificate-authority"}}
    if isinstance(ca, Path):
        try:
            description["certificate-authority-data"] = base64.b64encode(ca.read_bytes()).decode()
        except OSError as error:
            raise KubeconfigError(f"certificate-authority can't be read: {error}") from None
    for extension in cluster.get("extensions") or ():
        if isinstance(extension, Mapping) and extension.get("name") == _PLUGIN_SETTINGS:
            description["config"] = extension.get("extension")
    return description


def _provider_token(provider: Mapping[str, Any]) -> str:
    """Return the token that a login has stored in the kubeconfig.

    Unlike kubectl, this program doesn't renew the token.
    """
    token = _mapping(provider, "config").get("id-token")
    if not token:
        raise KubeconfigError(
            f"users[].user.auth-provider is {provider.get('name')}, which isn't supported; use exec with a credential "
            "plugin, for example kubelogin"
        )
    return str(token)


def _impersonated(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    headers = [("Impersonate-User", str(user["as"]))] if user.get("as") else []
    headers += [("Impersonate-Uid", str(user["as-uid"]))] if user.get("as-uid") else []
    headers += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    for name, values in (user.get("as-user-extra") or {}).items():
        if not isinstance(values, list):
            raise KubeconfigError(f"users[].user.as-user-extra.{name} must be a list")
        # A header's name can't have all characters of a key, such as the slash of example.org/team.
        header = f"Impersonate-Extra-{quote(str(name), safe=_HEADER_CHARACTERS)}"
        headers += [(header, str(value)) for value in values]
    return tuple(headers)


def _data(fields: Mapping[str, Any], name: str, folder: Path) -> bytes | Path | None:
    """Return the decoded field `NAME-data`; if there is no such field, the path in the field `NAME`."""
    if fields.get(f"{name}-data"):
        try:
            return base64.b64decode(str(fields[f"{name}-data"]), validate=False)
        except binascii.Error as error:
            raise KubeconfigError(f"{name}-data isn't base64: {error}") from None
    return folder / str(fields[name]) if fields.get(name) else None


def _document(file: Path) -> Mapping[str, Any]:
    try:
        document = next(manifest_loader.documents(file.read_text("utf-8-sig")), None)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise KubeconfigError(" ".join(str(error).split())) from None
    except RecursionError:
        raise KubeconfigError("it is nested too deeply") from None
    if document is None:  # an empty file, as `touch` makes it
        return {}
    if not isinstance(document, Mapping):
        raise KubeconfigError("it must be a mapping with contexts, clusters and users")
    return document


def _entries(document: Mapping[str, Any], section: str) -> list[Mapping[str, Any]]:
    entries = document.get(section) or []
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) and entry.get("name") for entry in entries):
        raise KubeconfigError(f"{section} must be a list of objects with a name")
    return entries


def _mapping(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name) or {}
    if not isinstance(value, Mapping):
        raise KubeconfigError(f"{name} must be a mapping")
    return value


def _check(fields: Mapping[str, Any], path: str) -> None:
    """Check the types of an object's fields. Errors don't show the values, which may be secret.

    Raises:
        KubeconfigError: a field has the wrong type.
    """
    for kind, names in _TYPES[path].items():
        for name in names:
            if fields.get(name) is not None and not isinstance(fields[name], kind):
                raise KubeconfigError(f"{path}.{name} must be {_TYPE_NAMES[kind]}")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # of the brackets or the port
        return False


def _named(
    entries: Mapping[str, tuple[Mapping[str, Any], Path]], context: Mapping[str, Any], kind: str, name: str
) -> tuple[Mapping[str, Any], Path]:
    entry_name = str(context.get(kind) or "")
    if entry_name not in entries:
        raise KubeconfigError(f"context {name} names the {kind} {entry_name or 'nothing'}, which isn't there")
    return entries[entry_name]
