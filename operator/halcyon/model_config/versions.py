"""Check that a model's source has the versions that are to be served. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from halcyon.api.documents.model_overlay import VersionPolicy
from halcyon.model_config import config_pbtxt


def problem(
    name: str,
    content: bytes | None,
    policy: VersionPolicy | None,
    existing: Collection[int],
    left_out: Collection[str] = (),
) -> str:
    """Return a sentence about a version in the version policy that isn't in the source; empty if there is none.

    `policy` is the policy in the spec. It replaces the policy in `content`, the config.pbtxt.
    """
    if policy is not None:
        if not (missing := [version for version in policy.specific if version not in existing]):
            return ""
        without_files = _list(version for version in missing if str(version) in left_out)
        return (
            f"spec.model.versions.specific has {_list(missing)}, but the source has no such version folder; it has "
            f"{_list(existing)}" + (f", and without files {without_files}" if without_files else "")
        )
    chosen = config_pbtxt.parse_if_valid(content).version_policy.specific.versions  # a newer file is used unchanged
    if not chosen or set(chosen) & set(existing):
        return ""  # Triton serves the versions that exist
    return (
        f"the version_policy in config.pbtxt of {name} has only {_list(chosen)}, and the source has the version folders "
        f"{_list(existing)}; for example version_policy {{ specific {{ versions: [{_list(existing)}] }} }}"
    )


def _list(versions: Iterable[int]) -> str:
    return ", ".join(map(str, versions))
