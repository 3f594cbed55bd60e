"""Installation of the package `halcyon` in the operator image, as from its wheels but without a build back end.

It runs during the image build with the environment's Python: `install.py SOURCE`, where SOURCE contains the directory
`halcyon` and the pyproject.toml of each distribution that has a part of it: halcyon-operator at the top, and halcyon-core
and halcyon-sidecars in `core` and `sidecars`. It copies the package with its byte code, and creates the console scripts of
[project.scripts]. It also writes the metadata that `importlib.metadata` and bills of materials read.
"""

import base64
import compileall
import hashlib
import os
import py_compile
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any


def install(source: Path) -> None:
    """Install from `source` into the environment of the running interpreter. It fails if a module doesn't compile."""
    described = [tomllib.loads(file.read_text()) for file in sorted(source.glob("*/pyproject.toml"))]
    operator = tomllib.loads((source / "pyproject.toml").read_text())
    packages = Path(sysconfig.get_path("purelib"))

    library = source / "halcyon/dashboard/static/uplot/uPlot.esm.js"
    if not library.is_file():
        sys.exit(
            "install.py: the dashboard's chart library, operator/halcyon/dashboard/static/uplot, is not there: `make bootstrap` fetches it"
        )
    target = packages / "halcyon"
    shutil.copytree(source / "halcyon", target)
    if not compileall.compile_dir(target, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH):
        sys.exit("install.py: the package halcyon does not compile")

    rest = {path for path in target.rglob("*") if path.is_file()}
    for document in described:
        parts = document["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["parts"].values()
        own = {path for path in rest if any(_is_in(path, packages / part) for part in parts)}
        _describe(document["project"], own)
        rest -= own
    _describe(operator["project"], rest)


def _is_in(path: Path, part: Path) -> bool:
    """Return True if the file, or the module that is its source, is at this path or below it."""
    source = path.parent.parent / f"{path.name.partition('.')[0]}.py" if path.parent.name == "__pycache__" else path
    return source.is_relative_to(part)


def _describe(project: dict[str, Any], files: set[Path]) -> None:
    """Create the scripts and the metadata of a distribution with these files."""
    packages, scripts = Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("scripts"))
    info = packages / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    described = {
        "Metadata-Version": "2.4",
        "Name": project["name"],
        "Version": project["version"],
        "Summary": project["description"],
        "License-Expression": project["license"],
    }
    (info / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in described.items()))
    (info / "INSTALLER").write_text("images/operator/install.py\n")

    made = []
    for name, entry in project.get("scripts", {}).items():
        module, function = entry.split(":")
        script = scripts / name
        script.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
        script.chmod(0o755)
        made.append(script)
    made += sorted(files | {path for path in info.rglob("*") if path.is_file()})
    rows = "".join(f"{os.path.relpath(path, packages)},{_digest(path)},{path.stat().st_size}\n" for path in made)
    (info / "RECORD").write_text(f"{rows}{info.name}/RECORD,,\n")


def _digest(path: Path) -> str:
    """Return a digest in the format of RECORD, without padding."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")


if __name__ == "__main__":
    install(Path(sys.argv[1]))
