"""Installation of the command line in the bench image, as from wheels but without a build back end.

It runs during the image build with the environment's Python: `install.py SOURCE`, where SOURCE has the packages and, in
folders of their own, the pyproject.toml of their distributions. The files of `halcyon` belong to the first distribution,
those of `halcyon_*` to halcyon-cli. The metadata is what `importlib.metadata` and bills of materials read.
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

PACKAGES = ("halcyon", "halcyon_cli", "halcyon_measure")
COMMAND = "import sys\nfrom halcyon.main import main\nsys.exit(main())\n"


def install(source: Path) -> None:
    """Install from `source` into the environment of the running interpreter. It fails if a module doesn't compile."""
    library = Path(sysconfig.get_path("purelib"))
    for name in PACKAGES:
        shutil.copytree(source / name, library / name)
        if not compileall.compile_dir(
            library / name, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        ):
            sys.exit(f"install.py: the package {name} does not compile")
    script = Path(sysconfig.get_path("scripts")) / "halcyon"
    script.write_text(f"#!{sys.executable}\n{COMMAND}")
    script.chmod(0o755)
    projects = [tomllib.loads(file.read_text())["project"] for file in sorted(source.glob("*/pyproject.toml"))]
    (base,) = [one for one in projects if one["name"] != "halcyon-cli"]
    (own,) = [one for one in projects if one["name"] == "halcyon-cli"]
    _describe(library, base, ["halcyon"], [script])
    _describe(library, own, ["halcyon_cli", "halcyon_measure"], [])


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
