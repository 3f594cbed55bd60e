"""Documents of batch inference: the recipe, which the operator gives to a runner, and the progress, which the runner publishes.

Operator and runner are not upgraded at the same moment, so fields that were added later have a default, and unknown ones are ignored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final, Self, TypeVar

from halcyon.api.documents import codec

T = TypeVar("T")

VERSION: Final = 1
PORT: Final = 8080
"""Port of the runner's pod for HTTP requests to the path `PATH`, which return the progress."""
PATH: Final = "/progress"
FAILED: Final = 2
"""Exit status of a runner that needs a change by the user. After any other nonzero status, a new runner continues."""
STOPPED: Final = 75
"""Exit status of a runner that Kubernetes has stopped, for example because the batch was paused."""
MAX_REQUEST_ROWS: Final = 4096
"""Maximum number of rows in a request, as in the field rowsPerRequest of a BatchInference."""
MAX_BYTES: Final = 4096
"""Maximum size of a progress document, in bytes. It is the maximum size of a termination message."""


class BatchDocumentError(ValueError):
    """The text is not a valid recipe or progress document of batch inference."""


@dataclass(frozen=True, kw_only=True)
class BatchBucket:
    """File or folder in a bucket, and the settings with which a runner connects to the bucket.

    Local paths are those in the runner's container.
    """

    url: str
    """URI of the file or folder, for example `s3://BUCKET/PATH`; the scheme is `s3`, `gs` or `az`."""
    endpoint: str | None = None
    """URL of the store that has the bucket; None for the default store of the cloud."""
    region: str | None = None
    limit_bytes: int | None = None
    """Maximum size of the input in bytes; None if the bucket is for results."""
    credentials: str | None = None
    """Path of the folder with a file for each key of the credentials Secret; None if there is no Secret."""
    identity: str | None = None
    """`StoreIdentity` as JSON; None to use the keys of the Secret, if there are any."""
    token: str | None = None
    """Path of the file with the token of the pod's ServiceAccount. It is set together with `identity`."""
    private: bool = False
    """Whether the store may be in a private network, because the site policy lists it."""
    proxy: str | None = None
    """URL of the site's HTTP proxy; None if pods connect directly."""
    no_proxy: str = ""
    """Hosts to which pods connect without the proxy, separated by commas."""
    ca: str | None = None
    """Path of the file with the site's CA certificates (PEM); None if the site has none."""


@dataclass(frozen=True, kw_only=True)
class BatchRecipe:
    """Recipe of batch inference: the work of one runner. Paths are those in the runner's container."""

    owner: str
    """Uid of the BatchInference for which the runner works."""
    name: str
    model: str
    """Name of the model in requests."""
    url: str
    """URL of the model's Service, for KServe v2 over HTTP."""
    input: str
    """Path of the input file or folder. If `input_bucket` is set, it is the folder to which the input is downloaded."""
    output: str
    """Path of the folder to which the results are written. It is unused if `output_bucket` is set."""
    input_format: str
    """Format of the input: `Npz`, `Jsonl`, `Parquet` or `Folder`; empty to infer it from the name."""
    output_format: str
    """Format of the results: `Npz` or `Jsonl`."""
    prepare: str = ""
    """Function that prepares the input, as `FILE.py:FUNCTION`; empty if there is none."""
    finish: str = ""
    rows_per_request: int | None = None
    """Number of rows per request. If None, the runner chooses it from the execution times that it measures."""
    max_rows: int | None = None
    """Maximum rows per request if the runner chooses the number; None if the model's largest batch is unknown."""
    rows_per_part: int | None = None
    """Number of rows in a part of the results. If None, the runner chooses it from the number and size of the rows."""
    max_failures: int = 100
    gentle: bool = False
    workers: int = 1
    """Number of processes that run `prepare` and `finish`."""
    api_key_file: str = ""
    """Path of a file with an API key, or of a folder of such files; empty if there is none."""
    input_bucket: BatchBucket | None = None
    """Bucket with the input; None if the input is on a volume."""
    output_bucket: BatchBucket | None = None
    """Bucket to which the results are written; None if they are written to a volume."""

    def to_json(self) -> str:
        """Return the recipe as JSON.

        Fields of unset buckets are left out, as in earlier versions of Halcyon, so an upgrade doesn't replace Jobs.
        """
        unset = frozenset(name for name in _BUCKETS if getattr(self, name) is None)
        return codec.encoded(self, VERSION, leave_out=unset, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse a recipe of batch inference.

        Raises:
            BatchDocumentError: the text is not a valid document.
        """
        recipe = _parsed(cls, text)
        try:
            buckets: dict[str, Any] = {
                name: codec.decoded(BatchBucket, raw) for name in _BUCKETS if (raw := getattr(recipe, name)) is not None
            }
            return replace(recipe, **buckets)
        except codec.NOT_A_DOCUMENT as error:
            raise BatchDocumentError(f"a bucket of the recipe is invalid: {error!r}") from error


_BUCKETS: Final = ("input_bucket", "output_bucket")


@dataclass(frozen=True, kw_only=True)
class BatchProgress:
    """Progress of batch inference.

    A row counts as done or failed once the part of the results that contains it is written.
    """

    total: int | None = None
    """Number of rows in the input; None until the input has been read."""
    done: int = 0
    """Number of rows with a result."""
    failed: int = 0
    """Number of rows without a result, which are listed in the file of failures."""
    rows_per_s: float | None = None
    """Number of rows per second in the recent past; None until it is known."""
    left_s: float | None = None
    """Estimated seconds until the batch is complete, at the recent rate; None until the rate is known."""
    rows_per_request: int | None = None
    is_complete: bool = False
    waiting: str = ""
    """Text that says what the runner is waiting for; empty if it isn't waiting."""
    reason: str = ""
    """Reason in one word if the runner has failed; empty otherwise."""
    message: str = ""

    def to_json(self) -> str:
        """Return the progress as JSON of at most `MAX_BYTES`. Long texts are cut."""
        waiting, message = _cut(self.waiting[:400], 900), _cut(self.message[:1000], 2600)
        return codec.encoded(replace(self, waiting=waiting, message=message), VERSION)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse a progress document. Check the type of each field, because a pod can send any text.

        Raises:
            BatchDocumentError: the text is not a valid document.
        """
        progress = _parsed(cls, text)
        for name, kinds in _TYPES.items():
            value = getattr(progress, name)
            if not isinstance(value, kinds) or (isinstance(value, int | float) and not 0 <= value < 1e15):
                raise BatchDocumentError(
                    f"{name} is {str(value)[:40]!r}; for example {getattr(BatchProgress(), name)!r}"
                )
        return progress


_COUNT, _FIGURE = (int,), (int, float, type(None))
_TYPES: Final = {
    "total": (int, type(None)), "done": _COUNT, "failed": _COUNT, "rows_per_s": _FIGURE, "left_s": _FIGURE,
    "rows_per_request": (int, type(None)), "is_complete": (bool,), "waiting": (str,), "reason": (str,), "message": (str,),
}  # fmt: skip


def _cut(text: str, size: int) -> str:
    """Return the longest prefix of the text that takes at most `size` bytes in JSON with ASCII escapes."""
    return text[: sum(used <= size for used in accumulate(len(json.dumps(char)) - 2 for char in text))]


def _parsed(kind: type[T], text: str) -> T:
    try:
        return codec.decoded(kind, codec.fields_of(text, VERSION))
    except (*codec.NOT_A_DOCUMENT, codec.UnknownVersionError) as error:
        raise BatchDocumentError(f"not a document of version {VERSION}: {error!r}") from error
