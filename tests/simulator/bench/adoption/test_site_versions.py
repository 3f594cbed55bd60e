"""Versions of the documentation site: what is kept, which is the latest, and where addresses without a version lead."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[4] / "scripts" / "site_versions.py"


@pytest.fixture(scope="module")
def versions() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_versions", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(folder: Path, text: str, *pages: str) -> Path:
    """Write the pages of a version, as the generator does."""
    for page in ("", *pages):
        (folder / page).mkdir(parents=True, exist_ok=True)
        (folder / page / "index.html").write_text(text)
    (folder / "search.json").write_text(json.dumps(text))
    return folder


def publish(versions: ModuleType, tmp_path: Path, version: str, *pages: str) -> Any:
    return versions.publish(built(tmp_path / f"built-{version}", version, *pages), tmp_path / "site", version)


def test_earlier_versions_stay_with_pages_and_search_of_their_own(versions: ModuleType, tmp_path: Path) -> None:
    publish(versions, tmp_path, "0.9.0", "limits")
    assert publish(versions, tmp_path, "0.10.0", "guides/install") == ["0.10.0", "0.9.0"]
    site = tmp_path / "site"
    assert (site / "0.9.0" / "limits" / "index.html").read_text() == "0.9.0"
    assert not (site / "0.10.0" / "limits").exists()
    for version in ("0.9.0", "0.10.0"):
        assert json.loads((site / version / "search.json").read_text()) == version


def test_latest_is_the_newest_release(versions: ModuleType, tmp_path: Path) -> None:
    latest = tmp_path / "site" / "latest" / "index.html"
    publish(versions, tmp_path, "dev")
    assert latest.read_text() == "dev"
    publish(versions, tmp_path, "0.10.0")
    publish(versions, tmp_path, "0.9.1")
    publish(versions, tmp_path, "1.0.0-rc1")
    assert latest.read_text() == "0.10.0"
    entries = json.loads((tmp_path / "site" / "versions.json").read_text())
    assert [(entry["version"], entry["aliases"]) for entry in entries] == [
        ("0.10.0", ["latest"]),
        ("0.9.1", []),
        ("dev", []),
        ("1.0.0-rc1", []),
    ]


def test_a_version_that_is_built_again_is_replaced(versions: ModuleType, tmp_path: Path) -> None:
    publish(versions, tmp_path, "0.1.0", "removed")
    assert publish(versions, tmp_path, "0.1.0", "added") == ["0.1.0"]
    names = {path.name for path in (tmp_path / "site" / "0.1.0").iterdir()}
    assert "added" in names
    assert "removed" not in names
    assert not (tmp_path / "site" / "removed").exists(), "a redirect to a page that is gone"


def test_addresses_without_a_version_lead_to_the_latest(versions: ModuleType, tmp_path: Path) -> None:
    publish(versions, tmp_path, "0.1.0", "runbooks/HalcyonModelAtMax")
    site = tmp_path / "site"
    for name in ("HalcyonModelAtMax", "HalcyonModelAtMax.md"):
        text = (site / "runbooks" / name / "index.html").read_text()
        assert 'location.replace("../../latest/runbooks/HalcyonModelAtMax/" + location.search + location.hash)' in text
        assert "url=../../latest/runbooks/HalcyonModelAtMax/" in text
    assert 'location.replace("latest/"' in (site / "index.html").read_text()


@pytest.mark.parametrize("version", ["latest", "../site", "", "a/b", ".hidden"])
def test_versions_that_are_no_folder_names_are_refused(versions: ModuleType, tmp_path: Path, version: str) -> None:
    with pytest.raises(versions.VersionError, match=r"for example VERSION=0\.2\.0"):
        versions.publish(built(tmp_path / "built", ""), tmp_path / "site", version)
    assert (tmp_path / "built").is_dir()
