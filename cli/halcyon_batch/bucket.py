"""Folder or file in a bucket of S3, Google Cloud Storage or Azure Blob Storage.

Connections are made in the same way as for downloads of models. Objects are written atomically. If the store can't be
reached, the exception is an OSError, after which a new runner continues. If the user must change something, it is a
BatchError.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import ObjectStore

from halcyon.api.documents.batch_documents import BatchBucket
from halcyon.api.documents.store_identity import StoreIdentity
from halcyon.fetch import stores
from halcyon.fetch.download import Remote, client_options
from halcyon.fetch.egress_proxy import EgressProxy, SiteProxy, is_open
from halcyon.fetch.errors import StoreError, known_reason
from halcyon_batch.errors import BatchError

_RETRIES: dict[str, Any] = {"max_retries": 6, "retry_timeout": timedelta(minutes=3)}
_PART_BYTES, _CONCURRENT_PARTS = 8 * 2**20, 8
_DENIED = re.compile(r"40[13] (Forbidden|Unauthorized)|AccessDenied|SignatureDoesNotMatch|InvalidAccessKeyId")
_FULL = re.compile(r"Quota ?Exceeded|StorageFull|Insufficient ?Storage|AccountIsDisabled", re.IGNORECASE)
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_INVALID_NAME = frozenset({errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})
"""Codes of errors for an object that no file can have the name of, for example because of objects below its own name."""
_MAX_SHOWN = 400


@dataclass(frozen=True)
class BucketObject:
    """Object in a folder of a bucket, at the time of a listing."""

    name: str
    """Path of the object relative to the opened URI; empty if the URI is that of the object itself."""
    size: int
    etag: str
    """ETag of the object, or the time of its last change if the store has no ETags."""


class Bucket:
    """Client for a URI in a bucket, and for the objects below that URI."""

    def __init__(
        self,
        store: ObjectStore,
        url: str,
        field: str,
        secrets: Mapping[str, str],
        proxy: EgressProxy | None,
        *,
        has_current_keys: Callable[[], bool] = lambda: True,
    ) -> None:
        """Create a client that uses a store.

        Error messages name `field`, which is `spec.input` or `spec.output`. They contain the values of `secrets` only
        in masked form. `has_current_keys` returns whether the Secret still has the keys that the store uses.
        """
        self.url, self._has_current_keys = url.rstrip("/"), has_current_keys
        self._store, self._field, self._secrets, self._proxy = store, field, secrets, proxy
        self._key = urlsplit(url).path.strip("/")

    def objects(self) -> list[BucketObject]:
        """Return the objects below the URI, in order of their names. Objects that only mark a folder are omitted."""
        with self._errors(""):
            listed = [entry for chunk in obstore.list(self._store, prefix=self._key or None) for entry in chunk]
        by_name = {entry["path"].removeprefix(f"{self._key}/" if self._key else ""): entry for entry in listed}
        folders = {name[: slash.start()] for name in by_name for slash in re.finditer("/", name)}
        files = {
            name: entry
            for name, entry in sorted(by_name.items())
            if name != self._key and not (entry["size"] == 0 and (name in folders or name.endswith("_$folder$")))
        }
        markers = self._markers({name for name, entry in files.items() if entry["size"] == 0})
        return [
            BucketObject(name, int(entry["size"]), _tag(entry)) for name, entry in files.items() if name not in markers
        ]

    def _markers(self, empty: set[str]) -> set[str]:
        """Return the names of empty objects that only mark an empty folder.

        The library removes the slash at the end of their keys. In a listing of one level, they are shown as folders.
        """
        with self._errors(""):
            levels = [
                obstore.list_with_delimiter(self._store, prefix=self._path(parent) or None)["common_prefixes"]
                for parent in {name.rpartition("/")[0] for name in empty}
            ]
        folders = {str(path) for level in levels for path in level}
        return {name for name in empty if self._path(name) in folders}

    def names(self) -> set[str]:
        """Return the names of all objects below the URI."""
        return {entry.name for entry in self.objects()}

    def single(self) -> BucketObject | None:
        """Return the object at the URI itself; None if the URI is that of a folder."""
        if not self._key:
            return None
        with self._errors(""):
            try:
                metadata = obstore.head(self._store, self._key)
            except FileNotFoundError as error:
                if _NO_BUCKET.search(str(error)):
                    raise
                return None
        return BucketObject("", int(metadata["size"]), _tag(metadata))

    def read(self, name: str) -> bytes | None:
        """Return the content of an object in the bucket; None if the object doesn't exist."""
        with self._errors(name):
            try:
                return bytes(obstore.get(self._store, self._path(name)).bytes())
            except FileNotFoundError:
                return None

    def create(self, name: str, content: bytes) -> bool:
        """Write an object to the bucket unless it exists, and return whether it was written."""
        with self._errors(name):
            try:
                obstore.put(self._store, self._path(name), content, mode="create")
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return False
            except exceptions.NotSupportedError:
                # A store without conditional writes. The Job runs one pod at a time, so nothing else writes in between.
                if self.read(name) is not None:
                    return False
                obstore.put(self._store, self._path(name), content)
            return True

    def write(self, name: str, content: bytes) -> None:
        """Write an object to the bucket, and replace an existing one."""
        with self._errors(name):
            obstore.put(self._store, self._path(name), content)

    def remove(self, name: str) -> None:
        """Remove an object from the bucket if it exists."""
        with self._errors(name), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, self._path(name))

    def download(self, files: Mapping[Path, BucketObject]) -> None:
        """Copy objects of the bucket to local files.

        Raises:
            BatchError: an object has changed since the listing, or has no valid file name.
            OSError: the store can't be reached, or the disk is full.
        """
        with ThreadPoolExecutor(_CONCURRENT_PARTS) as pool:
            for file, entry in files.items():
                self._create_file(file, entry)
            parts = [
                (file, entry, begin, min(begin + _PART_BYTES, entry.size))
                for file, entry in files.items()
                for begin in range(0, entry.size, _PART_BYTES)
            ]
            try:
                for _ in pool.map(lambda part: self._download_part(*part), parts):
                    pass
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _create_file(self, file: Path, entry: BucketObject) -> None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as target:
                target.truncate(entry.size)
        except OSError as error:
            if error.errno not in _INVALID_NAME:
                raise
            raise BatchError(
                "InputUnreadable",
                f"{self._field}: {self.url}/{entry.name} can't be copied to a file: {error.strerror}; rename the object, or put it "
                "into another folder",
            ) from None

    def _download_part(self, file: Path, entry: BucketObject, begin: int, end: int) -> None:
        options: Any = {"range": (begin, end)} | ({"if_match": entry.etag} if entry.etag.startswith('"') else {})
        with self._errors(entry.name):
            content = memoryview(obstore.get(self._store, self._path(entry.name), options=options).bytes())
        if len(content) != end - begin:
            raise OSError(f"{self.url}/{entry.name}: {len(content)} bytes arrived instead of {end - begin}")
        with file.open("r+b", buffering=0) as target:
            written = 0
            while written < len(content):
                written += os.pwrite(target.fileno(), content[written:], begin + written)

    def sha256(self) -> str:
        """Return the SHA-256 digest of the current content of the object at the URI itself."""
        digest = hashlib.sha256()
        with self._errors(""):
            for chunk in obstore.get(self._store, self._key).stream(min_chunk_size=2**20):
                digest.update(bytes(chunk))
        return f"sha256:{digest.hexdigest()}"

    def _path(self, name: str) -> str:
        return f"{self._key}/{name}".strip("/")

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Return a context manager that converts exceptions of the object store library.

        An exception becomes a BatchError if the user must change something; otherwise, an OSError.
        """
        if self._proxy is not None:
            self._proxy.forget_denials()
        try:
            yield
        except (exceptions.BaseError, FileNotFoundError) as error:
            raise self._store_error(f"{self.url}/{name}".rstrip("/"), error) from error

    def _store_error(self, url: str, error: Exception) -> Exception:
        error_reason = "InputUnreadable" if self._field == "spec.input" else "OutputUnwritable"
        text = stores.masked(" ".join(str(error).partition("Debug source:")[0].split()), self._secrets.values())
        message = match[1] if (match := re.search(r"<Message>(.*?)</Message>", text)) else text[:_MAX_SHOWN]
        if self._proxy is not None and self._proxy.denied_reason:
            reason = self._proxy.denied_reason
            if "can't be reached" in reason or "can't be resolved" in reason:
                return OSError(f"{url}: {reason}")
            return BatchError(error_reason, f"{self._field}: {url}: {reason}")
        if isinstance(error, exceptions.PreconditionError):
            return BatchError(
                "InputChanged",
                f"{self._field}: {url} has changed while it was downloaded; put each data set in a place of its own",
            )
        if _NO_BUCKET.search(text):
            return BatchError(
                error_reason,
                f"{self._field}: the bucket of {url} doesn't exist: {message}; make it, or correct uri or endpoint in a new BatchInference",
            )
        if isinstance(error, FileNotFoundError):
            return BatchError(error_reason, f"{self._field}: {url} doesn't exist")
        if _FULL.search(text):
            return BatchError(
                "OutputFull",
                f"{self._field}: the store has no space left for {url}: {message}; enlarge its quota, then resume",
            )
        if (cause := known_reason(str(error))) is not None:
            return BatchError(error_reason, f"{self._field}: {url}: {cause.replace('spec.model.source', self._field)}")
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError) or _DENIED.search(
            text
        ):
            return self._denied(url, message, error_reason)
        return OSError(f"{url}: {message}")

    def _denied(self, url: str, message: str, error_reason: str) -> Exception:
        if not self._has_current_keys():
            return OSError(f"{url}: the keys in the Secret were replaced, so a new runner continues: {message}")
        needed = stores.NEEDED[urlsplit(url).scheme]
        rights = "read and list" if self._field == "spec.input" else "list, read, write and delete in"
        return BatchError(
            error_reason,
            f"{self._field}: {url}: the store denied access; {self._field}.credentials must name a Secret with {needed}, or an "
            f"identity, that may {rights} it: {message}",
        )


def _tag(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("e_tag") or metadata["last_modified"].isoformat())


@contextlib.contextmanager
def opened(location: BatchBucket, field: str) -> Iterator[Bucket]:
    """Return a context manager that yields a client for a URI in a bucket.

    `field` is `spec.input` or `spec.output`.

    Raises:
        BatchError: the credentials are invalid or missing.
    """
    proxy = (
        None if location.proxy is None else SiteProxy(location.proxy, tuple(filter(None, location.no_proxy.split(","))))
    )
    identity = None if location.identity is None else StoreIdentity.from_json(location.identity)
    remote = Remote(location.url, location.endpoint, location.region)
    error_reason = "InputUnreadable" if field == "spec.input" else "OutputUnwritable"
    folder, site_ca = (None if path is None else Path(path) for path in (location.credentials, location.ca))
    try:
        secrets = stores.secret_values(folder, site_ca, field=field)
    except StoreError as error:
        raise BatchError(error_reason, str(error)) from None
    tokens = identity.servers(remote.bucket_region) if identity is not None else ()
    egress = EgressProxy([remote.server, *tokens], partial(is_open, private=location.private), proxy)
    with egress.opened() as address:
        keys: stores.Keys = secrets
        if identity is not None and location.token is not None:
            keys = stores.Exchange(identity, Path(location.token), address, secrets.get(stores.CA))
        client_settings = {"client_options": client_options(remote, secrets, address), "retry_config": _RETRIES}
        try:
            store = stores.bucket(
                location.url,
                remote.server,
                remote.bucket_region,
                keys,
                client_settings,
                field=field,
                writes=field == "spec.output",
            )
        except StoreError as error:
            raise BatchError(error_reason, str(error)) from None
        yield Bucket(
            store, location.url, field, secrets, egress, has_current_keys=partial(_has_values, folder, site_ca, secrets)
        )


def _has_values(folder: Path | None, site_ca: Path | None, secrets: Mapping[str, str]) -> bool:
    """Return whether the Secret still has these values. If it can't be read now, the result is true."""
    try:
        return stores.secret_values(folder, site_ca) == secrets
    except (StoreError, OSError):
        return True
