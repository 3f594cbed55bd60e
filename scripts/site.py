"""Generator of the documentation site: `make site` writes build/site/VERSION, and any web server can serve build/site.

The site loads nothing from other servers. Pages are in the order of docs/README.md. Files outside of docs/ to which a
page links (the chart's values, examples) become pages, so that no link leaves the site. A broken link fails the build.
Out of scope: what the site has beside the pages of one version (`site_versions`).

Usage: site.py [--version VERSION] [FOLDER]; the default is build/site, and the version that is tagged, or `dev`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts import site_versions  # noqa: E402  # after the path

DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
ADDRESS = "https://halcyon.dev/docs"
"""Address in each page's canonical link and in the sitemap, by which the selector of versions stays on the same page."""
DEVELOPMENT = "dev"
"""Version of the pages of a commit without a tag."""
_BUILT = "site"
_OUTSIDE = Path("repository")
"""Folder of the site for files from outside of docs/."""
_CODE_OR_LINK = re.compile(
    r"^```.*?^```$|^    .*?$|`[^`\n]*`|(?<=\]\()(?P<link>[^()\s]+)(?=\))", re.DOTALL | re.MULTILINE
)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_ENTRY = re.compile(r"^\| \[([^\]]+)\]\(([^)#]+)\)", re.MULTILINE)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


class SiteError(Exception):
    """An error in the pages. The message is one sentence."""


def main() -> int:
    """Prepare the pages, and build the site."""
    parser = argparse.ArgumentParser(prog="site.py", description="Build the documentation site.")
    parser.add_argument("folder", nargs="?", default="build/site", metavar="FOLDER")
    parser.add_argument("--version", default="", help="version of the pages (default: that of the tag, or dev)")
    options = parser.parse_args()
    version, target = options.version or _tagged() or DEVELOPMENT, (ROOT / options.folder).resolve()
    source = target.with_name(f"{target.name}-source")
    shutil.rmtree(source, ignore_errors=True)
    try:
        site_versions.check(version)
        pages = _stage(source / "docs")
    except (SiteError, site_versions.VersionError) as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    configuration = source / "mkdocs.yml"
    configuration.write_text(yaml.safe_dump(_configuration(pages, version), sort_keys=False))
    command = [
        str(Path(sys.executable).with_name("zensical")),
        "build",
        "--clean",
        "--strict",
        "--config-file",
        str(configuration),
    ]
    completed = subprocess.run(command, cwd=source, check=False)
    if completed.returncode:
        return completed.returncode
    versions = site_versions.publish(source / _BUILT, target, version)
    print(f"site: {len(pages)} pages in {os.path.relpath(target / version)}; versions: {', '.join(versions)}")
    return 0


def _tagged() -> str:
    """Return the version of the commit that is checked out, from its tag; empty if it has none."""
    command = ["git", "describe", "--exact-match", "--tags", "--match", "v[0-9]*"]
    described = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return described.stdout.strip().removeprefix("v")


def _stage(folder: Path) -> dict[Path, Path]:
    """Copy docs/ and the files to which it links, and return the new path of each repository file."""
    staged: dict[Path, Path] = {}
    waiting = [path for path in sorted(DOCS.rglob("*")) if path.is_file()]
    while waiting:
        path = waiting.pop()
        if path in staged:
            continue
        staged[path] = _place(path)
        if path.suffix == ".md":
            waiting += [linked for linked in _linked(path) if linked not in staged]
    for path, place in staged.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md" or not path.is_relative_to(DOCS):
            target.write_text(_rewritten(path, staged))
        else:
            shutil.copy(path, target)
    return {path: place for path, place in staged.items() if place.suffix == ".md"}


def _place(path: Path) -> Path:
    if path == INDEX:
        return Path("index.md")
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS)
    place = _OUTSIDE / path.relative_to(ROOT)
    return place / "index.md" if path.is_dir() else place.with_name(f"{place.stem}.md")


def _text(path: Path) -> str:
    """Return the Markdown text of the page for a file or folder."""
    if path.suffix == ".md":
        return path.read_text()
    title = f"# {path.relative_to(ROOT)}\n\n"
    if path.is_dir():
        return title + "".join(f"- `{entry.name}`\n" for entry in sorted(path.iterdir()))
    return f"{title}```{path.suffix.lstrip('.')}\n{path.read_text()}```\n"


def _target(path: Path, link: str) -> Path | None:
    """Return the repository file to which a link on this page points; None if it points elsewhere."""
    name = link.partition("#")[0]
    if not name or "://" in link or link.startswith("mailto:"):
        return None
    target = (path.parent / name).resolve()
    if not target.exists() or not target.is_relative_to(ROOT):
        raise SiteError(f"{path.relative_to(ROOT)} links to {link}, and there is no such file")
    return target


def _linked(path: Path) -> Iterator[Path]:
    for match in _CODE_OR_LINK.finditer(path.read_text()):
        if (link := match["link"]) and (target := _target(path, link)) is not None:
            yield target


def _rewritten(path: Path, staged: dict[Path, Path]) -> str:
    """Return the text of the page, with its links changed to the new paths."""

    def lead(match: re.Match[str]) -> str:
        link = match["link"]
        target = _target(path, link) if link else None
        if target is None:
            return match[0]
        relative = os.path.relpath(staged[target], _place(path).parent)
        return relative + (f"#{link.partition('#')[2]}" if "#" in link else "")

    return _CODE_OR_LINK.sub(lead, _text(path))


def _configuration(pages: dict[Path, Path], version: str) -> dict[str, Any]:
    return {
        "site_name": "Halcyon",
        "site_url": f"{ADDRESS}/{version}/",
        "site_description": "Autoscaled NVIDIA Triton serving on Kubernetes",
        "docs_dir": "docs",
        "site_dir": _BUILT,
        "theme": {
            "name": "material",
            "font": False,  # the reader's own fonts: the site loads nothing from other servers
            "features": ["content.code.copy", "navigation.footer", "navigation.tabs", "navigation.top", "search.highlight", "toc.follow"],
            "palette": [
                {"media": "(prefers-color-scheme: light)", "scheme": "default", "toggle": {"icon": "material/weather-night", "name": "Dark"}},
                {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "toggle": {"icon": "material/weather-sunny", "name": "Light"}},
            ],
        },
        "markdown_extensions": ["tables", {"toc": {"permalink": True}}, "pymdownx.highlight", "pymdownx.superfences"],
        "plugins": ["search"],
        # The theme's selector of versions reads versions.json beside the version's folder.
        "extra": {"version": {"provider": "mike", "default": site_versions.LATEST, "alias": True}},
        "nav": _navigation(pages),
    }  # fmt: skip


def _navigation(pages: dict[Path, Path]) -> list[dict[str, Any]]:
    """Return the sections of the index with their pages.

    All runbooks and decisions are added, which the index covers with one page each.
    """
    nav: list[dict[str, Any]] = [{"Documentation": "index.md"}]
    unlisted = dict(pages)
    del unlisted[INDEX]
    _, *parts = _SECTION.split(INDEX.read_text())
    for section, text in zip(parts[::2], parts[1::2], strict=True):
        entries: list[dict[str, Any]] = []
        for title, link in _ENTRY.findall(text):
            page = (DOCS / link).resolve()
            if page.name == "README.md":
                siblings = sorted(path for path in unlisted if path.parent == page.parent)
                entries.append(
                    {
                        title: [
                            {_title(path): str(unlisted.pop(path))}
                            for path in sorted(siblings, key=lambda p: p != page)
                        ]
                    }
                )
            elif page in unlisted:
                entries.append({title: str(unlisted.pop(page))})
        nav.append({section: entries})
    if unnamed := [str(path.relative_to(ROOT)) for path in unlisted if path.is_relative_to(DOCS)]:
        raise SiteError(f"docs/README.md doesn't name {', '.join(sorted(unnamed))}")
    nav.append(
        {"From the repository": [{str(path.relative_to(ROOT)): str(place)} for path, place in sorted(unlisted.items())]}
    )
    return nav


def _title(path: Path) -> str:
    match = _TITLE.search(path.read_text())
    return match[1] if match else path.stem


if __name__ == "__main__":
    sys.exit(main())
