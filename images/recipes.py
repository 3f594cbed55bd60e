"""Recipes of the images: their names, their inputs, and the digest that shows whether an image must be rebuilt.

This module runs no programs and writes no files.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Base:
    """Debian base image, built with mmdebstrap. The Dockerfiles' own default is Docker's image of the same suite."""

    suite: str
    merge_usr: bool = False
    packages: tuple[str, ...] = ()
    """Packages in addition to those that dpkg needs."""
    may_be_expired: bool = False
    """Whether signed package lists are accepted after their expiry, for a suite whose lists expire within days."""

    @property
    def reference(self) -> str:
        """Name of the image in buildah's storage."""
        return f"localhost/halcyon-base:{'-'.join((self.suite, *self.packages[:1]))}"

    @property
    def options(self) -> tuple[str, ...]:
        """Return mmdebstrap's options: only the packages that dpkg needs, without documentation.

        Docker's slim images omit the same files. `merge_usr` merges /usr beforehand. Otherwise Debian 12 would do this
        with a package that depends on 60 MB of Perl.
        """
        excluded = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
        return (
            "--variant=minbase",
            "--include=ca-certificates",
            *(f"--include={package}" for package in self.packages),
            *(('--aptopt=Acquire::Check-Valid-Until "false"',) if self.may_be_expired else ()),
            *(
                ("--include=usr-is-merged", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr")
                if self.merge_usr
                else ()
            ),
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in excluded),
            "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        )

    @property
    def digest(self) -> str:
        """Return the digest of the suite and the options.

        Debian's updates don't change it; use `build --fresh` to include them.
        """
        return hashlib.sha256("\n".join((self.suite, *self.options)).encode()).hexdigest()


@dataclass(frozen=True)
class Recipe:
    """Recipe of one image. Paths are relative to the repository.

    `name` is the name of the archive. `inputs` are all files and directories that the build reads, in addition to the
    base. `values_key` is the path of the image in the Helm values; it is empty for an image that no chart uses.
    """

    name: str
    reference: str
    base: Base
    dockerfile: str
    context: str
    inputs: tuple[str, ...]
    values_key: str = ""

    def files(self) -> Iterator[Path]:
        """Return the input files, sorted. Byte code is omitted, as in the build context."""
        for entry in self.inputs:
            path = REPOSITORY / entry
            paths = [path] if path.is_file() else sorted(path.rglob("*"))
            yield from (file for file in paths if file.is_file() and "__pycache__" not in file.parts)

    @property
    def digest(self) -> str:
        """Return the digest of the names, modes and contents of all inputs, and of the base."""
        digest = hashlib.sha256(f"{self.reference}\n{self.base.digest}\n".encode())
        for file in self.files():
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            executable = bool(file.stat().st_mode & 0o100)
            digest.update(f"{file.relative_to(REPOSITORY)} {executable} {content}\n".encode())
        return digest.hexdigest()


_INSTALLATION = ("images/environment.sh", "images/install.py")
"""Inputs of the images that contain Halcyon's packages."""
BOOKWORM = Base(suite="bookworm", merge_usr=True)
TRIXIE = Base(suite="trixie")


def _small(name: str, reference: str, base: Base, *, directory: str, values_key: str = "") -> Recipe:
    """Return the recipe of an image whose build context is the directory of its Dockerfile."""
    path = f"images/{directory}"
    return Recipe(
        name=name,
        reference=reference,
        base=base,
        dockerfile=f"{path}/Dockerfile",
        context=path,
        inputs=(path,),
        values_key=values_key,
    )


RECIPES = {
    recipe.name: recipe
    for recipe in (
        _small("pause", "localhost/pause:3.10", TRIXIE, directory="pause"),
        _small(
            "balancer", "localhost/halcyon-balancer:dev", TRIXIE, directory="balancer", values_key="images.balancer"
        ),
        Recipe(
            name="operator",
            reference="localhost/halcyon-operator:dev",
            base=TRIXIE,
            dockerfile="images/operator/Dockerfile",
            context=".",
            inputs=(
                *(
                    "images/operator",
                    *_INSTALLATION,
                    "pyproject.toml",
                    "core/pyproject.toml",
                    "sidecars/pyproject.toml",
                ),
                *("requirements/operator.lock", "operator/halcyon"),
            ),
            values_key="images.operator",
        ),
        Recipe(
            name="bench",
            reference="localhost/halcyon-bench:dev",
            base=TRIXIE,
            dockerfile="images/bench/Dockerfile",
            context=".",
            inputs=(
                *("images/bench", *_INSTALLATION, "core/pyproject.toml", "sidecars/pyproject.toml"),
                *("requirements/bench.lock", "requirements/parquet.lock", "operator/halcyon", "cli"),
            ),
            values_key="images.bench",
        ),
        _small(
            "tritonserver-cpu",
            "localhost/tritonserver-cpu:24.10",
            BOOKWORM,
            directory="triton",
            values_key="test.image",
        ),
    )
}
