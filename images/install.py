"""Installation of distributions in an image, with the same result as from wheels but without a build back end.

It runs during the image build with the environment's Python: `install.py SOURCE`. SOURCE is a part of the repository:
the pyproject.toml of each distribution to install, at the top or in a folder, and the packages that it names. The
script copies the files that the distribution's wheel would contain, with their byte code, and creates the console
scripts of [project.scripts]. It also writes the metadata that `importlib.metadata` and bills of materials use.
"""

import base64
import hashlib
import importlib.util
import os
import py_compile
import shutil
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHARTS = "halcyon/dashboard/static/uplot/uPlot.esm.js"
"""Path of the dashboard's chart library, which git ignores."""


def install(source: Path) -> None:
    """Install from `source` into the environment of the running interpreter. It fails if a module doesn't compile."""
    for file in sorted((*source.glob("pyproject.toml"), *source.glob("*/pyproject.toml"))):
        document = tomllib.loads(file.read_text())
        _install(document["project"], _contents(file.parent, document["tool"]["hatch"]["build"]["targets"]["wheel"]))


def _contents(folder: Path, wheel: dict[str, Any]) -> dict[str, Path]:
    """Return the files that the wheel of the distribution in `folder` would contain, by their paths in the wheel."""
    parts = {
        part: (folder / path).resolve()
        for path, part in wheel.get("hooks", {}).get("custom", {}).get("parts", {}).items()
    }
    excluded = [(folder / path).resolve() for path in wheel.get("exclude", ())]
    packages = {Path(package).name: (folder / package).resolve() for package in wheel.get("packages", ())}
    return {
        str(Path(name) / path.relative_to(root)): path
        for name, root in (parts | packages).items()
        for path in _files(root)
        if not any(path.is_relative_to(other) for other in excluded)
    }


def _files(root: Path) -> Iterator[Path]:
    if not root.exists():
        sys.exit(f"install.py: {root} is not there, which a pyproject.toml names; the Dockerfile must copy it")
    if root.is_file():
        yield root
        return
    yield from (path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)


def _install(project: dict[str, Any], contents: dict[str, Path]) -> None:
    """Copy and compile the files of a distribution, and create its scripts and its metadata."""
    if any(name.startswith("halcyon/dashboard/") for name in contents) and CHARTS not in contents:
        sys.exit(f"install.py: the chart library operator/{CHARTS} is not there: `make bootstrap` fetches it")
    packages, scripts = Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("scripts"))
    installed = []
    for name, entry in project.get("scripts", {}).items():
        module, function = entry.split(":")
        script = scripts / name
        script.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
        script.chmod(0o755)
        installed.append(script)
    for name, path in contents.items():
        target = packages / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
        installed.append(target)
        if target.suffix == ".py":
            try:
                mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                py_compile.compile(str(target), doraise=True, invalidation_mode=mode)
            except py_compile.PyCompileError as error:
                sys.exit(f"install.py: {error}")
            installed.append(Path(importlib.util.cache_from_source(str(target))))
    info = packages / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    metadata = {
        "Metadata-Version": "2.4",
        "Name": project["name"],
        "Version": project["version"],
        "Summary": project["description"],
        "License-Expression": project["license"],
    }
    (info / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in metadata.items()))
    (info / "INSTALLER").write_text("images/install.py\n")
    installed += [info / "METADATA", info / "INSTALLER"]
    rows = "".join(
        f"{os.path.relpath(path, packages)},{_digest(path)},{path.stat().st_size}\n" for path in sorted(installed)
    )
    (info / "RECORD").write_text(f"{rows}{info.name}/RECORD,,\n")


def _digest(path: Path) -> str:
    """Return a digest in the format of the file RECORD, without padding."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")


if __name__ == "__main__":
    install(Path(sys.argv[1]))
