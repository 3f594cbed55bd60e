"""Download of a model from an object store or a web server into an empty folder.

obstore (Python bindings of the Rust crate object_store) implements the protocols, and all connections go through
`egress_proxy`. The files in a bucket are read in parts, several at a time. Each part is requested with the ETag from
the listing, so that a file never mixes two versions. An archive is extracted while it is downloaded.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import HTTPStore

from halcyon.api.documents.store_identity import StoreIdentity, aws_server
from halcyon.fetch import stores
from halcyon.fetch.archive import TargetFolder, check_size, inside, placement_errors, unpack
from halcyon.fetch.egress_proxy import Address, EgressProxy, SiteProxy, is_open
from halcyon.fetch.errors import FetchError, SourceError, StoreError, known_reason
from halcyon.fetch.folder_markers import ListedObject, above, contents
from halcyon.fetch.progress_reports import ProgressReports, ReportProgress
from halcyon.fetch.registry import hugging_face, registries
from halcyon.fetch.registry.errors import RegistryFailure
from halcyon.fetch.registry.files import LOCAL, MAX_FILES, mark_program
from halcyon.fetch.stores import BucketStore

_MAX_CONCURRENT_PARTS = 8
"""Maximum number of parts that are read concurrently. Together with the size of a part, it limits the memory; the
container has 256 MiB."""
_PART_BYTES = 8 * 1024 * 1024
_FORBIDDEN = ("403 Forbidden", "401 Unauthorized")
_MAX_SHOWN = 400
"""Maximum number of characters that an error quotes from obstore's message."""


@dataclass(frozen=True)
class Remote:
    """Model to download, with the settings of `spec.model.source.uri`."""

    url: str
    endpoint: str | None = None
    region: str | None = None
    sha256: str | None = None
    """Expected SHA-256 of an archive; None to skip the check."""
    limit_bytes: int = 20 * 2**30
    """Maximum number of bytes that the download may write."""
    credentials: Path | None = None
    """Folder with a file for each key of the credentials Secret; None if there is no Secret."""
    identity: StoreIdentity | None = None
    """Identity for which the service account's token is exchanged; None to use the keys of the Secret, if there are
    any."""
    token: Path | None = None
    """File with the token of the pod's service account. It is set only together with `identity`."""
    private: bool = False
    """Whether the server may be in a private network, because it is listed in the site policy."""
    site_proxy: SiteProxy | None = None
    """HTTP proxy of the site; None if pods connect directly."""
    site_ca: Path | None = None
    """File with the CA certificates (PEM) of the site; None if there is none."""
    secret: str = ""
    """Name of the credentials Secret, for error messages."""

    @property
    def secret_keys(self) -> list[str]:
        """Keys of the credentials Secret; empty if it doesn't exist."""
        # The kubelet's own entries begin with two dots.
        files = [] if self.credentials is None else self.credentials.iterdir()
        return sorted(file.name for file in files if not file.name.startswith(".."))

    @property
    def needed_keys(self) -> str:
        """Keys that the credentials Secret needs for this URL, as text for error messages."""
        needed = stores.NEEDED.get(urlsplit(self.url).scheme, "authorization")
        return needed if self.identity is None else stores.CA

    @property
    def server(self) -> str:
        """URL of the server from which the model is downloaded."""
        if self.url.startswith("hf://"):
            return self.endpoint or hugging_face.SERVER
        if not self.is_bucket:
            return self.url
        google = self.url.startswith("gs://")
        return self.endpoint or ("https://storage.googleapis.com" if google else aws_server("s3", self.bucket_region))

    @property
    def is_bucket(self) -> bool:
        """Whether the model is a folder in a bucket instead of an archive."""
        return not self.url.startswith(("http://", "https://"))

    @property
    def bucket_region(self) -> str:
        """Region of the bucket, or the default region if none is set."""
        return self.region or "us-east-1"


def download(
    remote: Remote,
    folder: Path,
    report_progress: ReportProgress,
    allows: Callable[[Address], bool] | None = None,
) -> int:
    """Download a model into a folder, and return the number of bytes written.

    Files of an earlier attempt are deleted first.

    Args:
        remote: model to download.
        folder: existing, writable folder.
        report_progress: function that is called at the beginning, and then at most every 10 s.
        allows: function that returns True if the download may connect to an address. Default: `is_open`.

    Raises:
        FetchError: the disk is full.
        SourceError: the model does not exist, is too large, or does not have the expected digest.
        StoreError: the store cannot be reached, or denies access, or the credentials can't be used.
    """
    _empty(folder)
    if remote.credentials is not None and not remote.secret_keys:
        raise StoreError(
            f"{remote.url}: Secret {remote.secret}, which spec.model.source.credentials.secretName names, does not exist or is "
            f"empty; create it in the model's namespace, with {remote.needed_keys}"
        )
    secrets = stores.secret_values(remote.credentials, remote.site_ca)
    if remote.token is not None and not remote.token.is_file():
        raise StoreError(
            f"{remote.url}: there is no service account token at {remote.token}, which "
            "spec.model.source.credentials.identity requires; the kubelet provides it in the volume identity"
        )
    tokens = remote.identity.servers(remote.bucket_region) if remote.identity is not None else ()
    allows = allows or partial(is_open, private=remote.private)
    domains = hugging_face.DOMAINS if remote.server == hugging_face.SERVER else ()
    egress_proxy = EgressProxy([remote.server, *tokens], allows, remote.site_proxy, domains)
    with egress_proxy.opened() as proxy:
        try:
            if (model := registries.model(remote.url)) is not None:
                client = registries.client(remote.server, secrets, proxy)
                target = TargetFolder(folder, remote.limit_bytes)
                return registries.download(
                    model, client, target, lambda total: ProgressReports(report_progress, total).set
                )
            if remote.is_bucket:
                clients = {"client_options": client_options(remote, secrets, proxy), "retry_config": _RETRIES}
                keys: stores.Keys = secrets
                if remote.identity is not None and remote.token is not None:
                    keys = stores.Exchange(remote.identity, remote.token, proxy, secrets.get(stores.CA))
                store = stores.bucket(remote.url, remote.server, remote.bucket_region, keys, clients)
                return _bucket(store, remote, folder, report_progress)
            return _archive(remote, secrets, proxy, folder, report_progress)
        # The library raises FileNotFoundError for a missing object.
        except (exceptions.BaseError, FileNotFoundError, RegistryFailure) as error:
            raise _store_error(error, remote, secrets, egress_proxy.denied_reason) from error
        except OSError as error:
            if error.errno not in LOCAL:
                raise
            raise FetchError(
                f"{remote.url}: the disk of the pod's node can't store the model: {error.strerror}. Free space there, or let the "
                "scheduler choose a node with enough, for example spec.runtime.resources.requests.ephemeral-storage: 40Gi"
            ) from error


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def client_options(remote: Remote, secrets: Mapping[str, str], proxy: str) -> dict[str, Any]:
    """Return the proxy, timeouts and certificates for a client of a store, as options of obstore."""
    options: dict[str, Any] = {
        "proxy_url": proxy,
        "allow_http": remote.server.startswith("http://"),
        "connect_timeout": "10s",
        # Limits only the time between two reads. The total time depends on the model's size, and is limited by the pod's start.
        "read_timeout": "30s",
        "timeout": "1d",
    }
    if stores.CA in secrets:
        options["root_certificate"] = secrets[stores.CA]
    return options


_RETRIES: dict[str, Any] = {"max_retries": 4, "retry_timeout": timedelta(minutes=2)}


@dataclass(frozen=True)
class _Part:
    path: str
    """Path of the part's object in the bucket."""
    file: Path
    begin: int
    end: int
    etag: str | None


def _bucket(store: BucketStore, remote: Remote, folder: Path, report_progress: ReportProgress) -> int:
    prefix = urlsplit(remote.url).path.strip("/")
    parts, total = _create_files(store, prefix, remote, folder)
    done, reports = 0, ProgressReports(report_progress, total)
    with ThreadPoolExecutor(_MAX_CONCURRENT_PARTS) as pool:
        left: set[Future[int]] = {pool.submit(_download_part, store, part) for part in parts}
        try:
            while left:
                finished, left = wait(left, timeout=1, return_when=FIRST_EXCEPTION)
                done += sum(future.result() for future in finished)
                reports.set(done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return total


def _create_files(store: BucketStore, prefix: str, remote: Remote, folder: Path) -> tuple[list[_Part], int]:
    """Create the files in full size but without content. Return the parts to download, and the total size in bytes."""
    listing = contents(_list_objects(store, prefix, remote), remote.url.rstrip("/"))
    marked = _find_folders(store, prefix, listing.unclear)
    files = [*listing.files, *(entry for entry in listing.unclear if entry.path not in marked)]
    if not files:
        if prefix and stores.is_object(store, prefix):
            upper = re.sub(r"(/[0-9]+)?/[^/]+/?$", "", remote.url)
            raise SourceError(f"{remote.url} is a file; set the URI to the model's folder, for example {upper}")
        raise SourceError(f"{remote.url} is empty; a model's folder contains, for example, {remote.url}/1/model.onnx")
    parts: list[_Part] = []
    for entry in files:
        file = folder / inside(entry.path)
        with placement_errors(entry.path):
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as created:
                created.truncate(entry.size)
        parts += [
            _Part(_key(prefix, entry.path), file, begin, min(begin + _PART_BYTES, entry.size), entry.etag)
            for begin in range(0, entry.size, _PART_BYTES)
        ]
    for path in listing.folders | marked:
        with placement_errors(path):
            (folder / inside(path)).mkdir(parents=True, exist_ok=True)
    return parts, sum(entry.size for entry in files)


def _list_objects(store: BucketStore, prefix: str, remote: Remote) -> Iterator[ListedObject]:
    """Yield the objects in the model's folder.

    An object with the name of the folder itself, which some tools create, is omitted.
    """
    total = count = 0
    for entry in (meta for chunk in obstore.list(store, prefix=prefix or None) for meta in chunk):
        size = entry["size"]
        path = entry["path"].removeprefix(f"{prefix}/") if prefix else entry["path"]
        if entry["path"] == prefix or path.startswith("."):
            continue  # hidden folders, such as .git, are not part of a model (`mounted_source`)
        count += 1
        total += size
        if count > MAX_FILES:
            raise SourceError(f"{remote.url} has more than {MAX_FILES} objects; set the URI to the model's own folder")
        check_size(total, remote.limit_bytes)
        yield ListedObject(path, size, entry["e_tag"])


def _find_folders(store: BucketStore, prefix: str, unclear: Collection[ListedObject]) -> set[str]:
    """Return the paths of the objects in `unclear` that are folders.

    In a listing of a single level, the store returns keys that end in a slash as folders. One request is needed for
    each parent folder.
    """

    def folders(path: str) -> list[str]:
        return list(obstore.list_with_delimiter(store, prefix=_key(prefix, path) or None)["common_prefixes"])

    with ThreadPoolExecutor(_MAX_CONCURRENT_PARTS) as pool:
        folder_keys = {
            path for prefixes in pool.map(folders, {above(entry.path) for entry in unclear}) for path in prefixes
        }
    return {entry.path for entry in unclear if _key(prefix, entry.path) in folder_keys}


def _key(prefix: str, path: str) -> str:
    """Return the key of an object in the bucket from its path below the model's folder."""
    return f"{prefix}/{path}".strip("/")


def _download_part(store: BucketStore, part: _Part) -> int:
    options: Any = {"range": (part.begin, part.end), "if_match": part.etag}
    content = obstore.get(store, part.path, options=options).bytes()
    with part.file.open("r+b", buffering=0) as file:
        written, view = 0, memoryview(content)
        while written < len(view):
            written += os.pwrite(file.fileno(), view[written:], part.begin + written)
        if part.begin == 0:
            mark_program(part.file, view)
    if written != part.end - part.begin:
        raise StoreError(f"{part.path} is incomplete: {written} bytes of {part.end - part.begin}; it will be retried")
    return written


def _archive(
    remote: Remote, secrets: Mapping[str, str], proxy: str, folder: Path, report_progress: ReportProgress
) -> int:
    parts = urlsplit(remote.url)
    options = client_options(remote, secrets, proxy)
    if "authorization" in secrets:
        options["default_headers"] = {"authorization": secrets["authorization"]}
    store = HTTPStore(
        f"{parts.scheme}://{parts.netloc}",
        client_options=cast("Any", options),
        retry_config=cast("Any", _RETRIES),
    )
    answer = obstore.get(store, parts.path.lstrip("/"))
    reports = ProgressReports(report_progress, answer.meta["size"])
    stream = _Stream(answer.stream(min_chunk_size=1024 * 1024), reports)
    written = unpack(stream, folder, limit_bytes=remote.limit_bytes)
    digest = stream.digest()
    if remote.sha256 is not None and digest != remote.sha256:
        _empty(folder)
        raise SourceError(
            f"{remote.url} has the SHA-256 {digest}, and spec.model.source.digest is {remote.sha256}: the archive is a different one"
        )
    return written


class _Stream(io.RawIOBase):
    """File object for a downloaded archive that computes the digest while it is read."""

    def __init__(self, chunks: Any, reports: ProgressReports) -> None:
        self._chunks: Iterator[Any] = iter(chunks)
        self._reports, self._received = reports, 0
        self._buffer = memoryview(b"")
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read data into the buffer, and return the number of bytes read; 0 at the end of the archive."""
        if not self._buffer:
            self._buffer = memoryview(self._next())
        piece = self._buffer[: len(buffer)]
        buffer[: len(piece)] = piece
        self._buffer = self._buffer[len(piece) :]
        return len(piece)

    def _next(self) -> bytes:
        chunk = bytes(next(self._chunks, b""))
        self._hash.update(chunk)
        self._received += len(chunk)
        self._reports.set(self._received)
        return chunk

    def digest(self) -> str:
        """Read the rest of the archive, and return its SHA-256 in hexadecimal."""
        while self._next():
            pass
        return self._hash.hexdigest()


def _store_error(error: Exception, remote: Remote, secrets: Mapping[str, str], denied_reason: str) -> Exception:
    """Return the error to report to the model's owner; its message contains no values from the Secret."""
    if denied_reason:
        return StoreError(f"{remote.url}: {denied_reason}")
    if isinstance(error, exceptions.NotFoundError | FileNotFoundError):
        return SourceError(f"{remote.url} does not exist")
    message = stores.masked(" ".join(str(error).partition("Debug source:")[0].split()), secrets.values())
    # If a listing is denied, the library raises no specific exception; only the server's response shows it.
    denied = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
    denied = denied or any(status in message for status in _FORBIDDEN)
    if (reason := known_reason(str(error))) is not None:
        return StoreError(f"{remote.url}: {reason}")
    if isinstance(error, RegistryFailure):
        return SourceError(message) if error.is_missing else StoreError(message)
    if match := re.search(r"<Message>(.*?)</Message>", message):
        message = match[1]
    if denied and remote.identity is not None:
        return StoreError(
            f"{remote.url}: access was denied for spec.model.source.credentials.identity, {remote.identity.name}: {message[:_MAX_SHOWN]}; "
            f"it must trust tokens of the pods' service account (spec.runtime.serviceAccountName, or default) with the audience "
            f"{remote.identity.audience}, and may have to be allowed to read the bucket"
        )
    if denied:
        keys = f" (Secret {remote.secret} has {', '.join(remote.secret_keys)[:_MAX_SHOWN]})" if remote.secret else ""
        return StoreError(
            f"{remote.url}: the store denied access; set spec.model.source.credentials.secretName to a Secret with "
            f"{remote.needed_keys} that may read it{keys}: {message[:_MAX_SHOWN]}"
        )
    if isinstance(error, exceptions.PreconditionError):
        return StoreError(f"{remote.url} changed during the download; put each version into its own folder")
    return StoreError(f"{remote.url}: {message[:_MAX_SHOWN]}")
