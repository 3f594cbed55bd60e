"""Download of a model in a server pod: arguments, credentials, and the servers to which the fetcher connects."""

from __future__ import annotations

from halcyon.api.documents.store_identity import StoreIdentity
from halcyon.api.policy.downloads import NO_DOWNLOADS, SiteDownloads
from halcyon.api.spec.model import DEFAULT_SIZE_LIMIT, Source
from halcyon.api.types import quantity
from halcyon.render.metadata import Object

_CREDENTIALS, _IDENTITY, _CA = "/halcyon/credentials", "/halcyon/identity", "/halcyon/ca"
_TOKEN_LIFETIME_S = 3600
"""Lifetime of the service account's token, in seconds. A download may take longer, because the kubelet renews the
token."""


def arguments(source: Source, site: SiteDownloads = NO_DOWNLOADS) -> list[str]:
    """Return the fetcher's arguments for a model that is downloaded."""
    identity = _identity(source)
    values = {
        "url": source.uri,
        "endpoint": source.endpoint,
        "region": source.region,
        "path": source.path,
        "sha256": None if source.digest is None else source.digest.removeprefix("sha256:"),
        "credentials": _CREDENTIALS if source.credentials and source.credentials.secret_name else None,
        "secret": source.credentials.secret_name if source.credentials else None,
        "identity": identity and identity.to_json(),
        "token": identity and f"{_IDENTITY}/token",
        "limit-bytes": int(quantity(source.size_limit or DEFAULT_SIZE_LIMIT)),
        "proxy": site.proxy,
        "no-proxy": ",".join(site.no_proxy) if site.proxy and site.no_proxy else None,
        "ca": f"{_CA}/ca.crt" if site.ca_config_map else None,
    }
    return [f"--{name}={value}" for name, value in values.items() if value is not None]


def volumes(source: Source, site: SiteDownloads = NO_DOWNLOADS, *, waits_for_secret: bool = False) -> dict[str, Object]:
    """Return the volumes with credentials and certificates, by mount path. Only the fetcher's container mounts them.

    If the Secret or the ConfigMap is missing, the fetcher reports this. With `waits_for_secret`, the kubelet waits for
    the Secret instead, and reports this only in an Event.
    """
    by_path: dict[str, Object] = {}
    if source.uri is not None and site.ca_config_map is not None:
        items = [{"key": "ca.crt", "path": "ca.crt"}]
        by_path[_CA] = {"name": "ca", "configMap": {"name": site.ca_config_map, "items": items, "optional": True}}
    if source.credentials is not None and source.credentials.secret_name is not None:
        secret: Object = {"secretName": source.credentials.secret_name}
        secret |= {} if waits_for_secret else {"optional": True}
        by_path[_CREDENTIALS] = {"name": "credentials", "secret": secret}
    if (identity := _identity(source)) is not None:
        token = {"path": "token", "audience": identity.audience, "expirationSeconds": _TOKEN_LIFETIME_S}
        by_path[_IDENTITY] = {"name": "identity", "projected": {"sources": [{"serviceAccountToken": token}]}}
    return by_path


def servers(args: list[str]) -> list[tuple[str, str | None]]:
    """Return the URL and the endpoint of each server to which the fetcher connects with these arguments.

    The list is empty if nothing is downloaded.
    """
    values = dict(argument.removeprefix("--").partition("=")[::2] for argument in args)
    if "url" not in values:
        return []
    if proxy := values.get("proxy"):
        # Servers that are reached without the proxy are unknown here, because the list of exceptions may have networks.
        return [(proxy, None), *servers([arg for arg in args if not arg.startswith("--proxy=")])]
    tokens = StoreIdentity.from_json(values["identity"]).servers("") if "identity" in values else ()
    return [(values["url"], values.get("endpoint")), *((server, None) for server in tokens)]


def _identity(source: Source) -> StoreIdentity | None:
    cloud = source.credentials.identity if source.credentials is not None else None
    if cloud is None:
        return None
    if cloud.aws is not None:
        return StoreIdentity("aws", cloud.aws.role_arn, endpoint=cloud.endpoint)
    if cloud.azure is not None:
        return StoreIdentity("azure", cloud.azure.client_id, cloud.azure.tenant_id, cloud.endpoint)
    if cloud.google is not None:
        return StoreIdentity("google", cloud.google.provider, cloud.google.service_account or "", cloud.endpoint)
    raise ValueError("the identity has no cloud; such a spec is never accepted")
