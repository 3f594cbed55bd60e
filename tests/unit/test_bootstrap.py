"""The script that makes the Python environment, `scripts/bootstrap`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_an_environment_of_another_tree_is_never_replaced(tmp_path: Path) -> None:
    tree, other = tmp_path / "tree", tmp_path / "other" / ".venv"
    (tree / "scripts").mkdir(parents=True)
    (other / "bin").mkdir(parents=True)
    (other / ".lock-digest").write_text("of another state\n")
    shutil.copy(ROOT / "scripts" / "bootstrap", tree / "scripts")
    (tree / ".venv").symlink_to(other)

    done = subprocess.run([tree / "scripts" / "bootstrap"], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"bootstrap: .venv is a link to {other}, which lacks what this tree needs; remove the link" in done.stderr
    assert sorted(path.name for path in other.iterdir()) == [".lock-digest", "bin"]


def test_git_ignores_an_environment_that_is_a_link() -> None:
    # Git replaces an ignored folder with a link that a merged commit has. A pattern that ends in / ignores folders only.
    assert "/.venv" in (ROOT / ".gitignore").read_text().splitlines()
