"""Notes of a release: the changelog's section of the version, with links that work on the release's page."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[4]
REPOSITORY = "https://example.com/owner/halcyon"
CHANGELOG = """# Changelog

## Unreleased

### Added

- Later.

## 0.1.0 - 2027-01-31

### Added

- A [guide](docs/guides/zero.md#cold-starts), [a site](https://example.com) and [a section](#added).

## 0.0.1 - 2026-01-31

- Earlier.
"""


@pytest.fixture(scope="module")
def release_notes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release_notes", ROOT / "scripts" / "release_notes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notes_are_the_section_of_the_tag(release_notes: ModuleType) -> None:
    text = release_notes.notes(CHANGELOG, "v0.1.0", REPOSITORY)
    assert text.startswith("### Added\n")
    assert "Later" not in text
    assert "Earlier" not in text
    assert f"[guide]({REPOSITORY}/blob/v0.1.0/docs/guides/zero.md#cold-starts)" in text
    assert "[a site](https://example.com) and [a section](#added)" in text


def test_versions_without_a_section_are_an_error(release_notes: ModuleType) -> None:
    with pytest.raises(release_notes.ReleaseNotesError, match=r"no section of version 0\.1\.1; .* like ## 0\.1\.1 - "):
        release_notes.notes(CHANGELOG, "v0.1.1", REPOSITORY)


def test_sections_that_a_release_does_not_take_are_an_error(release_notes: ModuleType) -> None:
    long = CHANGELOG.replace("Earlier", "x" * release_notes.MAX_CHARACTERS)
    with pytest.raises(release_notes.ReleaseNotesError, match="125000; shorten it"):
        release_notes.notes(long, "v0.0.1", REPOSITORY)


def test_the_changelog_of_this_tree_fits_into_a_release(release_notes: ModuleType) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text().replace("## Unreleased", "## 0.1.0 - 2027-01-31")
    assert "### Added" in release_notes.notes(changelog, "v0.1.0", REPOSITORY)
