"""Choice of the registry by the scheme of a model's URI, and download of the model from it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from halcyon.fetch.registry import files, hugging_face
from halcyon.fetch.registry.client import RegistryClient
from halcyon.fetch.registry.errors import RegistryError
from halcyon.fetch.registry.hugging_face import HuggingFaceModel
from halcyon.fetch.registry.mlflow import MlflowModel


def model(url: str) -> HuggingFaceModel | MlflowModel | None:
    """Return the model in a registry to which a URI refers; None if its scheme is not that of a registry."""
    scheme = urlsplit(url).scheme
    return HuggingFaceModel(url) if scheme == "hf" else MlflowModel(url) if scheme == "mlflow" else None


def client(server: str, secrets: Mapping[str, str], proxy: str) -> RegistryClient:
    """Return a client for the registry at the URL `server`. `secrets` is the content of the credentials Secret."""
    bearer = f"Bearer {secrets[hugging_face.TOKEN]}" if secrets.get(hugging_face.TOKEN) else None
    return RegistryClient(server, secrets.get("authorization") or bearer, proxy, secrets.get("ca.crt"))


def download(
    model: HuggingFaceModel | MlflowModel,
    client: RegistryClient,
    target: files.DownloadTarget,
    begin_reports: files.BeginReports,
) -> int:
    """Download the model into the folder; return the number of bytes.

    Raises:
        RegistryFailure: the model doesn't exist, its layout or checksum is wrong, or the registry denies access.
    """
    try:
        remote_files = model.files(client)
        files.check_layout(remote_files, model.url, target)
        return files.download(remote_files, client, target, begin_reports)
    except RegistryError as error:
        raise model.error(error, client) from error
