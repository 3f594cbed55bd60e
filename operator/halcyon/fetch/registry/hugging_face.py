"""Models in the Hugging Face Hub, or in another server with its HTTP interface.

The listing of a commit contains the sizes and checksums of its files. The checksum of a file in Git LFS is its SHA-256,
that of any other file the id of its git object. The interface is documented at https://huggingface.co/docs/hub/api and
in the OpenAPI document there.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from halcyon.fetch.registry.client import RegistryClient
from halcyon.fetch.registry.errors import RegistryError, RegistryFailure
from halcyon.fetch.registry.files import Checksum, RegistryFile

SERVER = "https://huggingface.co"
DOMAINS = (".huggingface.co", ".hf.co")
"""Domains of the hosts to which the Hugging Face Hub redirects for the content of files."""
TOKEN = "HF_TOKEN"  # noqa: S105  # the name of a key
"""Key of the access token in the credentials Secret."""


class HuggingFaceModel:
    """Model in a repository of the Hugging Face Hub."""

    def __init__(self, url: str) -> None:
        """Parse a URI of the form `hf://OWNER/REPO@COMMIT/FOLDER`."""
        self.url = url.rstrip("/")
        """URI of the model."""
        repository, _, place = self.url.removeprefix("hf://").partition("@")
        self._repository = repository
        self._commit, _, self._folder = place.partition("/")

    def files(self, client: RegistryClient) -> list[RegistryFile]:
        """Return the files of the model's folder at the commit.

        Raises:
            RegistryError: the hub denies the request.
            RegistryFailure: the hub can't be reached.
        """
        below = f"/{quote(self._folder)}" if self._folder else ""
        path: str | None = f"/api/models/{self._repository}/tree/{self._commit}{below}?recursive=true"
        files: list[RegistryFile] = []
        while path is not None:
            entries, path = client.document(path)
            files += [self._file(entry) for entry in entries if entry["type"] == "file"]
        return [file for file in files if not file.path.startswith(".")]

    def _file(self, entry: dict[str, Any]) -> RegistryFile:
        large = entry.get("lfs")
        checksum = Checksum("sha256", large["oid"]) if large else Checksum("git", entry["oid"])
        location = f"/{self._repository}/resolve/{self._commit}/{quote(entry['path'])}"
        name = entry["path"].removeprefix(f"{self._folder}/") if self._folder else entry["path"]
        return RegistryFile(name, (large or entry)["size"], location, checksum)

    def error(self, error: RegistryError, client: RegistryClient) -> RegistryFailure:
        """Return the hub's error as an exception with a message for the model's owner."""
        field = "spec.model.source.credentials.secretName"
        if error.code == "GatedRepo":
            page = f"{client.server}/{self._repository}"
            remedy = (
                f" with the account of the {TOKEN}"
                if client.has_credentials
                else f", then set {field} to a Secret with {TOKEN}"
            )
            return RegistryFailure(f"{self.url} is gated: accept its terms at {page}{remedy} ({error.message})")
        if error.code == "RevisionNotFound":
            return RegistryFailure(f"{self.url}: {self._repository} has no commit {self._commit}", is_missing=True)
        if error.status == 404 or error.code == "RepoNotFound":
            reader = (
                f"the {TOKEN} may not read it"
                if client.has_credentials
                else f"it is private; then set {field} to a Secret with {TOKEN}"
            )
            missing = f"folder {self._folder}" if error.code == "EntryNotFound" else self._repository
            return RegistryFailure(
                f"{self.url} does not exist: there is no {missing} at {urlsplit(client.server).netloc}, or {reader}",
                is_missing=True,
            )
        return error.failure(self.url, "the hub", f"an {TOKEN} that is valid and may read {self._repository}")
