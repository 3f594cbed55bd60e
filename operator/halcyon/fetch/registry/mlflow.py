"""Models in MLflow's registry, whose tracking server also serves their artifacts.

The interface is documented at https://mlflow.org/docs/latest/api_reference/rest-api.html. It lists no checksums. If a
server does not serve artifacts but refers to another store, the download fails with a message that contains the URI to
use.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode, urlsplit

from halcyon.fetch.registry.client import RegistryClient
from halcyon.fetch.registry.errors import RegistryError, RegistryFailure
from halcyon.fetch.registry.files import MAX_FILES, RegistryFile

_ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"


class MlflowModel:
    """Version of a model that is registered in MLflow."""

    def __init__(self, url: str) -> None:
        """Parse a URI of the form `mlflow://MODEL/VERSION/FOLDER`."""
        self.url = url.rstrip("/")
        """URI of the model."""
        self._model, self._version, *folder = self.url.removeprefix("mlflow://").split("/")
        self._folder = "/".join(folder)

    def files(self, client: RegistryClient) -> list[RegistryFile]:
        """Return the files of the model's folder in this version.

        Raises:
            RegistryError: the server denies the request.
            RegistryFailure: the server can't be reached, the artifacts are in another store, or there are too many.
        """
        query = urlencode({"name": self._model, "version": self._version})
        version, _ = client.document(f"/api/2.0/mlflow/model-versions/get-download-uri?{query}")
        stored = urlsplit(version["artifact_uri"])
        if stored.scheme != "mlflow-artifacts":
            raise RegistryFailure(
                f"{self.url}: {client.server} keeps this version at {version['artifact_uri']} and does not serve it; name that place in "
                "spec.model.source.uri, or start the server with --serve-artifacts and register the model again",
                is_missing=True,
            )
        root = "/".join(filter(None, (stored.path.strip("/"), self._folder)))
        files: list[RegistryFile] = []
        folders = [""]
        while folders:
            folder = folders.pop()
            listed, _ = client.document(f"{_ARTIFACTS}?{urlencode({'path': f'{root}/{folder}'.rstrip('/')})}")
            for entry in listed.get("files", ()):
                # Paths are relative to the folder, or in some versions only the name.
                path = f"{folder}/{entry['path'].rpartition('/')[2]}".lstrip("/")
                if entry.get("is_dir"):
                    folders.append(path)
                else:
                    size = entry.get("file_size")
                    location = f"{_ARTIFACTS}/{quote(f'{root}/{path}')}"
                    files.append(RegistryFile(path, None if size is None else int(size), location))
            if len(files) + len(folders) > MAX_FILES:
                raise RegistryFailure(
                    f"{self.url} has more than {MAX_FILES} files; set the URI to the model's own folder",
                    is_missing=True,
                )
        return [file for file in files if not file.path.startswith(".")]

    def error(self, error: RegistryError, client: RegistryClient) -> RegistryFailure:
        """Return the server's error as an exception with a message for the model's owner."""
        if error.code == "RESOURCE_DOES_NOT_EXIST" or error.status == 404:
            return RegistryFailure(
                f"{self.url} does not exist at {urlsplit(client.server).netloc}: {error.message}", is_missing=True
            )
        return error.failure(self.url, "the registry", "authorization that may read it")
