"""What images there are, under which names, from which inputs; and the digest that tells whether one must be built anew.

Nothing here runs a program or writes a file.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Base:
    """A Debian base, made by mmdebstrap; the Dockerfiles' own default is Docker's image of the same suite."""

    suite: str
    merge_usr: bool = False

    @property
    def reference(self) -> str:
        """The name in buildah's storage."""
        return f"localhost/halcyon-base:{self.suite}"

    @property
    def options(self) -> tuple[str, ...]:
        """What mmdebstrap is given: only what dpkg itself needs, and no documentation, as in Docker's slim images.

        `merge_usr`: Debian 12 would merge /usr by a package that draws in 60 MB of Perl, were it not done beforehand.
        """
        excluded = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
        return (
            "--variant=minbase",
            "--include=ca-certificates",
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
        """Changes with the suite and the options. Debian's own updates don't change it: `build --fresh` takes those in."""
        return hashlib.sha256("\n".join((self.suite, *self.options)).encode()).hexdigest()


@dataclass(frozen=True)
class Recipe:
    """How one image is built. Paths are relative to the repository.

    `name` names the archive; `inputs` are files and directories, all that the build reads beside the base.
    `values_key` is the image's place in the Helm values; empty for an image that no chart refers to.
    """

    name: str
    reference: str
    base: Base
    dockerfile: str
    context: str
    inputs: tuple[str, ...]
    values_key: str = ""

    def files(self) -> Iterator[Path]:
        """The input files, sorted; byte code is left out, as in the build's context."""
        for entry in self.inputs:
            path = REPOSITORY / entry
            found = [path] if path.is_file() else sorted(path.rglob("*"))
            yield from (file for file in found if file.is_file() and "__pycache__" not in file.parts)

    @property
    def digest(self) -> str:
        """Over the names, modes and contents of all inputs, and the base."""
        digest = hashlib.sha256(f"{self.reference}\n{self.base.digest}\n".encode())
        for file in self.files():
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            executable = bool(file.stat().st_mode & 0o100)
            digest.update(f"{file.relative_to(REPOSITORY)} {executable} {content}\n".encode())
        return digest.hexdigest()


BOOKWORM = Base(suite="bookworm", merge_usr=True)
TRIXIE = Base(suite="trixie")


def _small(name: str, reference: str, base: Base, *, directory: str, values_key: str = "") -> Recipe:
    """An image whose context is the directory of its Dockerfile."""
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
        _small("balancer", "localhost/halcyon-balancer:dev", TRIXIE, directory="balancer", values_key="balancer"),
        Recipe(
            name="operator",
            reference="localhost/halcyon-operator:dev",
            base=TRIXIE,
            dockerfile="images/operator/Dockerfile",
            context=".",
            inputs=("images/operator", "pyproject.toml", "requirements/operator.lock", "operator/halcyon"),
            values_key="operator",
        ),
        _small(
            "tritonserver-cpu", "localhost/tritonserver-cpu:24.10", BOOKWORM, directory="triton", values_key="triton"
        ),
    )
}
