"""The documentation as a site: `make site` writes build/site, which any web server can serve, and which loads nothing from elsewhere.

The order of the pages is that of docs/README.md. What a page links to outside of docs/ (the chart's values, examples) becomes a page of
its own, so that no link leads out of the site; one that leads nowhere fails the build.

Usage: site.py [FOLDER], build/site where it is left out.
"""

from __future__ import annotations

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
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
_BUILT = "site"
_BESIDE = Path("repository")
"""Where what isn't of docs/ goes."""
_CODE_OR_LINK = re.compile(
    r"^```.*?^```$|^    .*?$|`[^`\n]*`|(?<=\]\()(?P<link>[^()\s]+)(?=\))", re.DOTALL | re.MULTILINE
)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_ENTRY = re.compile(r"^\| \[([^\]]+)\]\(([^)#]+)\)", re.MULTILINE)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


class SiteError(Exception):
    """A sentence about what is wrong with the pages."""


def main() -> int:
    """Stage the pages and build the site."""
    target = (ROOT / sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()
    source = target.with_name(f"{target.name}-source")
    shutil.rmtree(source, ignore_errors=True)
    try:
        pages = _stage(source / "docs")
    except SiteError as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    configuration = source / "mkdocs.yml"
    configuration.write_text(yaml.safe_dump(_configuration(pages), sort_keys=False))
    command = [
        str(Path(sys.executable).with_name("zensical")),
        "build",
        "--clean",
        "--strict",
        "--config-file",
        str(configuration),
    ]
    done = subprocess.run(command, cwd=source, check=False)
    if done.returncode:
        return done.returncode
    shutil.rmtree(target, ignore_errors=True)
    shutil.move(source / _BUILT, target)
    print(f"site: {len(pages)} pages in {os.path.relpath(target)}")
    return 0


def _stage(folder: Path) -> dict[Path, Path]:
    """Copy docs/ and what it links to; returns where each file of the repository went."""
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
        made = folder / place
        made.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md" or not path.is_relative_to(DOCS):
            made.write_text(_rewritten(path, staged))
        else:
            shutil.copy(path, made)
    return {path: place for path, place in staged.items() if place.suffix == ".md"}


def _place(path: Path) -> Path:
    if path == INDEX:
        return Path("index.md")
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS)
    place = _BESIDE / path.relative_to(ROOT)
    return place / "index.md" if path.is_dir() else place.with_name(f"{place.stem}.md")


def _text(path: Path) -> str:
    """A page of this file or folder."""
    if path.suffix == ".md":
        return path.read_text()
    title = f"# {path.relative_to(ROOT)}\n\n"
    if path.is_dir():
        return title + "".join(f"- `{entry.name}`\n" for entry in sorted(path.iterdir()))
    return f"{title}```{path.suffix.lstrip('.')}\n{path.read_text()}```\n"


def _target(path: Path, link: str) -> Path | None:
    """The file that a link of this page leads to; None where it isn't of the repository."""
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
    """The page, its links led to where the files went."""

    def lead(match: re.Match[str]) -> str:
        link = match["link"]
        target = _target(path, link) if link else None
        if target is None:
            return match[0]
        where = os.path.relpath(staged[target], _place(path).parent)
        return where + (f"#{link.partition('#')[2]}" if "#" in link else "")

    return _CODE_OR_LINK.sub(lead, _text(path))


def _configuration(pages: dict[Path, Path]) -> dict[str, Any]:
    return {
        "site_name": "Halcyon",
        "site_description": "Autoscaled NVIDIA Triton serving on Kubernetes",
        "docs_dir": "docs",
        "site_dir": _BUILT,
        "theme": {
            "name": "material",
            "font": False,  # a reader's own: nothing is loaded from elsewhere
            "features": ["content.code.copy", "navigation.footer", "navigation.tabs", "navigation.top", "search.highlight", "toc.follow"],
            "palette": [
                {"media": "(prefers-color-scheme: light)", "scheme": "default", "toggle": {"icon": "material/weather-night", "name": "Dark"}},
                {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "toggle": {"icon": "material/weather-sunny", "name": "Light"}},
            ],
        },
        "markdown_extensions": ["tables", {"toc": {"permalink": True}}, "pymdownx.highlight", "pymdownx.superfences"],
        "plugins": ["search"],
        "nav": _navigation(pages),
    }  # fmt: skip


def _navigation(pages: dict[Path, Path]) -> list[dict[str, Any]]:
    """The index' sections with their pages; runbooks and decisions, which it names by one page, with all of them."""
    nav: list[dict[str, Any]] = [{"Documentation": "index.md"}]
    left = dict(pages)
    del left[INDEX]
    _, *parts = _SECTION.split(INDEX.read_text())
    for section, text in zip(parts[::2], parts[1::2], strict=True):
        entries: list[dict[str, Any]] = []
        for title, link in _ENTRY.findall(text):
            page = (DOCS / link).resolve()
            if page.name == "README.md":
                beside = sorted(path for path in left if path.parent == page.parent)
                entries.append(
                    {title: [{_title(path): str(left.pop(path))} for path in sorted(beside, key=lambda p: p != page)]}
                )
            elif page in left:
                entries.append({title: str(left.pop(page))})
        nav.append({section: entries})
    if lost := [str(path.relative_to(ROOT)) for path in left if path.is_relative_to(DOCS)]:
        raise SiteError(f"docs/README.md doesn't name {', '.join(sorted(lost))}")
    nav.append(
        {"From the repository": [{str(path.relative_to(ROOT)): str(place)} for path, place in sorted(left.items())]}
    )
    return nav


def _title(path: Path) -> str:
    found = _TITLE.search(path.read_text())
    return found[1] if found else path.stem


if __name__ == "__main__":
    sys.exit(main())
