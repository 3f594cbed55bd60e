"""Versions of the documentation site, as folders that any web server can serve. Out of scope: the pages (`site.py`).

    VERSION/        pages of one version, with a search of their own; their links are relative, so they stay in it
    latest/         copy of the newest release, or of the newest version if there is no release
    versions.json   versions for the selector in each page's header, newest first
    PAGE/, PAGE.md/ redirects from addresses without a version, as alerts have them, to `latest`

A folder with a version that was built earlier, or copied from a server, stays. All other entries are written again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

LATEST = "latest"
_MARK = ".version"
"""File in the folder of each version."""
_VALID = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]*")
_RELEASE = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")
_REDIRECT = """\
<!doctype html>
<meta charset="utf-8">
<title>Halcyon</title>
<link rel="canonical" href="{to}">
<script>location.replace("{to}" + location.search + location.hash)</script>
<noscript><meta http-equiv="refresh" content="0; url={to}"></noscript>
<a href="{to}">Documentation of Halcyon</a>
"""


class VersionError(Exception):
    """A version that can't be the name of a folder. The message is one sentence."""


def check(version: str) -> None:
    """Check that a version can be the name of its folder.

    Raises:
        VersionError: it can't.
    """
    if version == LATEST or not _VALID.fullmatch(version):
        raise VersionError(f"VERSION is {version}, which isn't the name of a version; for example VERSION=0.2.0")


def publish(built: Path, root: Path, version: str) -> list[str]:
    """Move the built pages of a version into the site, and return the site's versions, newest first."""
    check(version)
    root.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(root / version, ignore_errors=True)
    versions = sorted({version, *(mark.parent.name for mark in root.glob(f"*/{_MARK}"))} - {LATEST}, key=_order)[::-1]
    for entry in root.iterdir():
        if entry.name not in versions:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.move(built, root / version)
    (root / version / _MARK).write_text(f"{version}\n")
    latest = next((name for name in versions if _RELEASE.fullmatch(name)), versions[0])
    shutil.copytree(root / latest, root / LATEST)
    entries = [{"version": v, "title": v, "aliases": [LATEST] if v == latest else []} for v in versions]
    (root / "versions.json").write_text(json.dumps(entries, indent=1) + "\n")
    _redirect(root, versions)
    return versions


def _order(version: str) -> tuple[bool, list[int], str]:
    """Return the key by which versions are sorted: releases by number, before them all others by name."""
    match = _RELEASE.fullmatch(version)
    return match is not None, [int(number or 0) for number in match.groups()] if match else [], version


def _redirect(root: Path, versions: list[str]) -> None:
    """Write the redirects from addresses without a version."""
    for page in sorted((root / LATEST).rglob("index.html")):
        place = page.parent.relative_to(root / LATEST)
        names = {place, place.with_name(f"{place.name}.md")} if place.name else {place}
        for name in names:
            if name.parts and name.parts[0] in {LATEST, *versions}:
                continue
            to = os.path.relpath(root / LATEST / place, root / name)
            (root / name).mkdir(parents=True, exist_ok=True)
            (root / name / "index.html").write_text(_REDIRECT.format(to=f"{Path(to).as_posix()}/"))
