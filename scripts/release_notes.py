"""Writes the notes of a release, from the changelog's section of a version, to stdout: `scripts/release_notes.py v0.1.0`.

Relative links become links to the files at the tag, because a release's page is not in the repository's tree.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_CHARACTERS = 125_000
"""Maximum length of a release's text on GitHub, from its error message "body is too long (maximum is 125000 characters)"."""
_RELATIVE = re.compile(r"\]\((?!https?://|#|mailto:)([^)\s]+)\)")


class ReleaseNotesError(Exception):
    """The changelog has no usable section of the version. The message names the version and the remedy."""


def notes(changelog: str, tag: str, repository: str) -> str:
    """Return the section of a version, without its heading. `repository` is the address of the repository's web page.

    Raises:
        ReleaseNotesError: there is no such section, it is empty, or it is too long for a release.
    """
    version = tag.removeprefix("v")
    sections = re.split(r"^## +", changelog, flags=re.MULTILINE)[1:]
    parts = (s.partition("\n") for s in sections)
    text = next((body.strip() for head, _, body in parts if re.match(rf"\[?{re.escape(version)}\]?(\s|$)", head)), None)
    if not text:
        example = f"## {version} - 2027-01-31"
        raise ReleaseNotesError(f"CHANGELOG.md has no section of version {version}; its heading must be like {example}")
    text = _RELATIVE.sub(rf"]({repository}/blob/{tag}/\1)", text)
    if len(text) > MAX_CHARACTERS:
        length = f"{len(text)} characters, and a release's text may have {MAX_CHARACTERS}"
        raise ReleaseNotesError(f"CHANGELOG.md: the section of version {version} has {length}; shorten it")
    return f"{text}\n"


def main(arguments: list[str]) -> int:
    """Write the notes of the tag `arguments[0]`, with links to the repository `arguments[1]`."""
    if len(arguments) != 2:
        sys.stderr.write(
            "release_notes: give a tag and a repository: scripts/release_notes.py v0.1.0 https://HOST/OWNER/REPOSITORY\n"
        )
        return 2
    try:
        sys.stdout.write(notes((ROOT / "CHANGELOG.md").read_text(), *arguments))
    except ReleaseNotesError as error:
        sys.stderr.write(f"release_notes: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
