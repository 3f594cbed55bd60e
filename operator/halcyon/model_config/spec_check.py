"""Check of a config.pbtxt against the spec of its model, before a pod starts. Pure.

The check detects the same errors as the fetcher, because both use the same functions. Out of scope: files that are
larger than `MAX_BYTES`, or in a volume or bucket, which only the fetcher in the pod checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from halcyon.api.documents.model_overlay import Overlay
from halcyon.model_config import model_config_proto
from halcyon.model_config.errors import ModelError, UnknownFieldError

MAX_BYTES = 64 * 1024
"""Maximum size in bytes of a config.pbtxt that is checked before a pod starts, which takes 0.1 s. The fetcher checks
larger files in the pod."""


def is_available() -> bool:
    """Return whether the packages that the check of a config.pbtxt needs are installed."""
    return model_config_proto.path() is not None


def problem(content: bytes, overlay: Overlay) -> str:
    """Return a sentence about the first error in a config.pbtxt, merged with this overlay; empty if none is found."""
    return _findings(content, overlay)[0]


def problem_of_repository(
    overlay: Overlay, configs: Mapping[str, bytes | None], versions: Mapping[str, tuple[int, ...]]
) -> str:
    """Return a sentence about the first error in companions, versions or steps of ensembles; empty if none is found.

    `configs` contains each model's config.pbtxt, by name, and `versions` the numbers of its version folders.
    """
    contents = [content for content in configs.values() if content is not None]
    is_checked = is_available() and (contents or overlay.version_policy is not None)
    if not is_checked or any(len(content) > MAX_BYTES for content in contents):
        return ""
    return _checked_repository(overlay.to_json(), tuple(sorted(configs.items())), tuple(sorted(versions.items())))


@lru_cache(maxsize=16)  # at most 16 MiB, because a ConfigMap has at most 1 MiB
def _checked_repository(
    overlay: str, configs: tuple[tuple[str, bytes | None], ...], existing: tuple[tuple[str, tuple[int, ...]], ...]
) -> str:
    from halcyon.model_config import companion, config_pbtxt, ensemble, versions  # noqa: PLC0415  # as below

    texts: dict[str, bytes | None] = {}
    spec = Overlay.from_json(overlay)
    for name, content in configs:
        try:
            texts[name] = content and config_pbtxt.as_triton_reads(content)
            companion.check(name, b"" if name == spec.model_name else texts[name] or b"")
        except ModelError as error:
            return "" if name == spec.model_name else companion.named(name, error)
    problems = (
        versions.problem(name, texts[name], spec.version_policy if name == spec.model_name else None, folders)
        for name, folders in existing
        if folders
    )
    return next(filter(None, problems), "") or ensemble.missing_step(texts)


def doubt(content: bytes, overlay: Overlay) -> str:
    """Return a sentence about a field that is valid only if a newer Triton has it; empty if there is none."""
    return _findings(content, overlay)[1]


def _findings(content: bytes, overlay: Overlay) -> tuple[str, str]:
    if len(content) > MAX_BYTES or not is_available():
        return "", ""
    return _checked(content, overlay.to_json())


@lru_cache(maxsize=64)  # at most 4 MiB; a reconcile repeats the check of a file that has not changed
def _checked(content: bytes, overlay: str) -> tuple[str, str]:
    from halcyon.model_config import config_pbtxt, merged_config  # noqa: PLC0415  # protobuf takes 5 MiB

    try:
        text = config_pbtxt.as_triton_reads(content)
        merged_config.of(text, Overlay.from_json(overlay))
    except ModelError as error:
        return str(error), ""
    try:
        config_pbtxt.parse(text)
    except UnknownFieldError as error:
        return "", str(error)
    return "", ""
