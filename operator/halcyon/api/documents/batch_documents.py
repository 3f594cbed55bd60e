"""Documents of batch inference: the recipe, which the operator gives to a runner, and the progress, which the runner publishes.

Operator and runner are not upgraded at the same moment, so fields that were added later have a default, and unknown ones are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self, TypeVar

from halcyon.api.documents import codec

T = TypeVar("T")

VERSION: Final = 1
PORT: Final = 8080
"""Port of the runner's pod at which `PATH` has the progress."""
PATH: Final = "/progress"
FAILED: Final = 2
"""Exit status of a runner that can't go on unless the user changes something. After any other one but 0, a new runner goes on."""
MAX_BYTES: Final = 4096
"""Maximum size of a progress document, which is that of a termination message."""


class BatchDocumentError(ValueError):
    """The text is not such a document."""


@dataclass(frozen=True, kw_only=True)
class BatchRecipe:
    """What a runner does. Paths are those in its container."""

    owner: str
    """uid of the BatchInference."""
    name: str
    model: str
    """Name of the model in requests."""
    url: str
    """URL of the model's Service, for KServe v2 over HTTP."""
    input: str
    """Path of the file or folder."""
    output: str
    """Path of the folder for the results."""
    input_format: str
    """Npz, Jsonl or Folder."""
    output_format: str
    """Npz or Jsonl."""
    prepare: str = ""
    """FILE.py:FUNCTION; empty for none."""
    finish: str = ""
    rows_per_request: int | None = None
    """None: chosen from the execution times that the runner measures."""
    max_rows: int | None = None
    """Largest number of rows of a request that may be chosen; None if the largest batch of the model is unknown."""
    rows_per_part: int | None = None
    """None: chosen from the number of rows and their size."""
    max_failures: int = 100
    gentle: bool = False
    workers: int = 1
    """Processes that run `prepare` and `finish`."""
    api_key_file: str = ""
    """File with an API key, or folder of such files; empty for none."""

    def to_json(self) -> str:
        """Return the document."""
        return codec.encoded(self, VERSION, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse a document.

        Raises:
            BatchDocumentError: the text is not one.
        """
        return _parsed(cls, text)


@dataclass(frozen=True, kw_only=True)
class BatchProgress:
    """How far a runner is. Rows count when their part is written."""

    total: int | None = None
    """Rows of the input; None until it is read."""
    done: int = 0
    """Rows with a result."""
    failed: int = 0
    """Rows without one, which are in the file of failures."""
    rows_per_s: float | None = None
    """Recent rate; None until it is known."""
    left_s: float | None = None
    """Seconds until the end at this rate; None until it is known."""
    rows_per_request: int | None = None
    is_complete: bool = False
    waiting: str = ""
    """What the runner waits for; empty if it works."""
    reason: str = ""
    """One word for the failure with which the runner has ended; empty if there is none."""
    message: str = ""

    def to_json(self) -> str:
        """Return the document, whose texts are cut to fit into `MAX_BYTES`."""
        return codec.encoded(replace(self, waiting=self.waiting[:400], message=self.message[:1000]), VERSION)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse a document, of which a pod can send any.

        Raises:
            BatchDocumentError: the text is not one.
        """
        made = _parsed(cls, text)
        for name, kinds in _TYPES.items():
            value = getattr(made, name)
            if not isinstance(value, kinds) or (isinstance(value, int | float) and not 0 <= value < 1e15):
                raise BatchDocumentError(
                    f"{name} is {str(value)[:40]!r}; for example {getattr(BatchProgress(), name)!r}"
                )
        return made


_COUNT, _FIGURE = (int,), (int, float, type(None))
_TYPES: Final = {
    "total": (int, type(None)), "done": _COUNT, "failed": _COUNT, "rows_per_s": _FIGURE, "left_s": _FIGURE,
    "rows_per_request": (int, type(None)), "is_complete": (bool,), "waiting": (str,), "reason": (str,), "message": (str,),
}  # fmt: skip


def _parsed(kind: type[T], text: str) -> T:
    try:
        return codec.made(kind, codec.fields_of(text, VERSION))
    except (*codec.NOT_A_DOCUMENT, codec.UnknownVersionError) as error:
        raise BatchDocumentError(f"not a document of version {VERSION}: {error!r}") from error
