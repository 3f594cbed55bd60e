"""The documentation site as its generator builds it: pages of one version link to that version alone, and have their own search."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.more

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r'<(?:a|script|link)\b[^>]*?\b(?:href|src)="?([^"\s>]+)')


def test_pages_of_a_version_link_to_that_version_alone(tmp_path: Path) -> None:
    script = str(ROOT / "scripts" / "site.py")
    subprocess.run([sys.executable, script, "--version", "0.1.0", str(tmp_path / "site")], check=True, cwd=ROOT)
    site = tmp_path / "site"
    pages = sorted((site / "0.1.0").rglob("index.html"))
    assert len(pages) > 100
    odd = set()
    for page in pages:
        for link in _LINK.findall(page.read_text()):
            if "://" in link or link.startswith(("mailto:", "data:", "#", "javascript:")):
                continue
            target = (page.parent / link.partition("#")[0].partition("?")[0]).resolve()
            if link.startswith("/") or not target.is_relative_to(site / "0.1.0") or not target.exists():
                odd.add((str(page.relative_to(site)), link))
    assert odd == set()
    assert '"provider":"mike"' in pages[0].read_text()
    assert (site / "0.1.0" / "search.json").stat().st_size > 100_000
    urls = re.findall(r"<loc>([^<]+)", (site / "0.1.0" / "sitemap.xml").read_text())
    assert len(urls) > 100
    assert [url for url in urls if not url.startswith("https://halcyon.dev/docs/0.1.0/")] == []
    assert (site / "runbooks" / "HalcyonModelAtMax.md" / "index.html").is_file()
