"""Installation of the command line in the bench image, as from wheels but without a build back end.

It runs during the image build with the environment's Python: `install.py SOURCE`, where SOURCE has the packages and, in
the folders `core` and `cli`, the pyproject.toml of their distributions. Of `halcyon` it takes the part of halcyon-core,
so that nothing of the operator is in the image. The metadata is what `importlib.metadata` and bills of materials read.
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

OWN = ("halcyon_cli", "halcyon_measure", "halcyon_tune")


def install(source: Path) -> None:
    """Install from `source` into the environment of the running interpreter. It fails if a module doesn't compile."""
    library = Path(sysconfig.get_path("purelib"))
    core, cli = (tomllib.loads((source / name / "pyproject.toml").read_text()) for name in ("core", "cli"))
    for part in (*core["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["parts"].values(), *OWN):
        (library / part).parent.mkdir(parents=True, exist_ok=True)
        if (source / part).is_dir():
            shutil.copytree(source / part, library / part)
        else:
            shutil.copyfile(source / part, library / part)
    for name in ("halcyon", *OWN):
        if not compileall.compile_dir(
            library / name, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        ):
            sys.exit(f"install.py: the package {name} does not compile")
    scripts = []
    for name, entry in core["project"]["scripts"].items():
        module, function = entry.split(":")
        script = Path(sysconfig.get_path("scripts")) / name
        script.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
        script.chmod(0o755)
        scripts.append(script)
    _describe(library, core["project"], ["halcyon"], scripts)
    _describe(library, cli["project"], list(OWN), [])


def _describe(library: Path, project: dict[str, Any], packages: list[str], scripts: list[Path]) -> None:
    """Write the metadata of a distribution with these packages and scripts."""
    info = library / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    described = {
        "Metadata-Version": "2.4",
        "Name": project["name"],
        "Version": project["version"],
        "Summary": project["description"],
        "License-Expression": project["license"],
    }
    (info / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in described.items()))
    (info / "INSTALLER").write_text("images/bench/install.py\n")
    folders = [*(library / name for name in packages), info]
    made = [*scripts, *sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())]
    rows = "".join(f"{os.path.relpath(path, library)},{_digest(path)},{path.stat().st_size}\n" for path in made)
    (info / "RECORD").write_text(f"{rows}{info.name}/RECORD,,\n")


def _digest(path: Path) -> str:
    """Return a digest in the format of RECORD, without padding."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")


if __name__ == "__main__":
    install(Path(sys.argv[1]))
