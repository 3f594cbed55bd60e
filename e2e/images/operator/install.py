"""Installs our own package into the operator image's environment, as a wheel's installer would, without a build back end.

Runs inside the image build with the environment's own Python: `install.py SOURCE`, where SOURCE holds pyproject.toml and
the directory `halcyon`. Copies the package with its byte code, writes the metadata that `importlib.metadata` reads, and
makes the console scripts of [project.scripts].
"""

import compileall
import py_compile
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path


def install(source: Path) -> None:
    """Install from `source` into the environment of the running interpreter; fails where a module does not compile."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    paths = sysconfig.get_paths()
    packages, scripts = Path(paths["purelib"]), Path(paths["scripts"])

    target = packages / "halcyon"
    shutil.copytree(source / "halcyon", target)
    if not compileall.compile_dir(target, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH):
        sys.exit("install.py: the package halcyon does not compile")

    info = packages / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {project['name']}\nVersion: {project['version']}\n")
    (info / "INSTALLER").write_text("e2e/images/operator/install.py\n")

    for name, entry in project["scripts"].items():
        module, function = entry.split(":")
        script = scripts / name
        script.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
        script.chmod(0o755)


if __name__ == "__main__":
    install(Path(sys.argv[1]))
