"""Image builds: mmdebstrap -> buildah -> OCI archive. A step runs only if its inputs have changed.

The file NAME.inputs next to NAME.tar contains the digest of the inputs of the build. buildah's storage (the layer
cache) is in the same directory and isn't shared with other programs, so removing the directory removes everything.
"""

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from images.host import ImagesError, images_directory, prepare
from images.recipes import RECIPES, REPOSITORY, Base, Recipe

_BASE_LABEL = "dev.halcyon.inputs"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The host's settings for package indexes and proxies. Only the first build stages receive them, so no image contains
# them.
_PIP_SETTINGS = ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
_CERTIFICATES = Path("/etc/ssl/certs")
_LINES_OF_AN_ERROR = 15


def progress(name: str, message: str) -> None:
    """Print a progress line for the user."""
    print(f"images: {name}: {message}", flush=True)


class Workshop:
    """Builder: buildah with its own storage, and a log per image. Only one process may use it at a time (`locked`)."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._buildah = ("buildah", "--root", str(directory / "storage"), "--runroot", str(directory / "run"))
        # Containers without a daemon may lack namespaces and cgroups. The isolation chroot needs neither.
        self._environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Return a context manager that waits for the lock of the cache, and holds it while its block runs.

        Other builds that use the same cache wait until the lock is released.
        """
        with (self.directory / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def buildah(self, *arguments: str, log: str) -> str:
        """Run buildah, and return its stdout.

        Raises:
            ImagesError: buildah failed; the message ends with the last lines of the log.
        """
        return self.run((*self._buildah, *arguments), log=log)

    def succeeds(self, *arguments: str) -> bool:
        """Return whether a buildah command succeeds, for queries such as `inspect`."""
        completed = subprocess.run(
            [*self._buildah, *arguments], env=self._environment, capture_output=True, check=False
        )
        return completed.returncode == 0

    def run_in_terminal(self, *arguments: str) -> int:
        """Run buildah with its output on the terminal, and return its exit status."""
        return subprocess.run([*self._buildah, *arguments], env=self._environment, check=False).returncode

    def run(self, command: Iterable[str], *, log: str) -> str:
        """Run a program with its stderr in logs/`log`.log, and return its stdout.

        Raises:
            ImagesError: the program failed; the message ends with the last lines of the log.
        """
        logs = self.directory / "logs"
        logs.mkdir(exist_ok=True)
        path = logs / f"{log}.log"
        with path.open("a") as stream:
            print("+", *command, file=stream, flush=True)
            begin = stream.tell()
            completed = subprocess.run(
                list(command), env=self._environment, stdout=subprocess.PIPE, stderr=stream, text=True, check=False
            )
            stream.write(completed.stdout)
        if completed.returncode:
            log_lines = path.read_bytes()[begin:].decode(errors="replace").splitlines()
            tail = "\n".join(log_lines[-_LINES_OF_AN_ERROR:])
            raise ImagesError(f"images: {log}: failed with status {completed.returncode}; the end of {path}:\n{tail}")
        return completed.stdout.strip()


def build_images(names: Iterable[str] = (), *, fresh: bool = False) -> dict[str, Path]:
    """Build the named images (default: all) if they are outdated, and return the archives by name.

    `fresh` empties buildah's storage first (base images and cached layers), so that Debian's updates are included.

    Raises:
        ImagesError: a name is unknown, the machine can't build images, or a build failed.
    """
    recipes = _named(names)
    directory = images_directory()
    stale = [recipe for recipe in recipes if fresh or not is_current(recipe, directory)]
    for recipe in recipes:
        if recipe not in stale:
            progress(recipe.name, "up to date")
    if stale:
        prepare(directory)
        workshop = Workshop(directory)
        with workshop.locked():
            if fresh:
                workshop.buildah("rmi", "--all", "--force", log="storage")
            for base in dict.fromkeys(recipe.base for recipe in stale):
                ensure_base(workshop, base)
            for recipe in stale:
                # Another process may have built it during the wait for the lock.
                if fresh or not is_current(recipe, directory):
                    _build(workshop, recipe)
    return {recipe.name: archive(recipe, directory) for recipe in recipes}


def archive(recipe: Recipe, directory: Path) -> Path:
    """Return the path of the image's OCI archive."""
    return directory / f"{recipe.name}.tar"


def is_current(recipe: Recipe, directory: Path) -> bool:
    """Return True if the archive exists and was built from the current inputs."""
    stamp = directory / f"{recipe.name}.inputs"
    return archive(recipe, directory).exists() and stamp.exists() and stamp.read_text().strip() == recipe.digest


def ensure_stored(workshop: Workshop, recipe: Recipe) -> None:
    """Load the image from its archive into buildah's storage if it isn't there yet."""
    if not workshop.succeeds("inspect", "--type=image", recipe.reference):
        workshop.buildah("pull", "-q", f"oci-archive:{archive(recipe, workshop.directory)}", log=recipe.name)


@contextmanager
def container(workshop: Workshop, recipe: Recipe) -> Iterator[Callable[..., str]]:
    """Return a context manager that yields a function for running programs as root in the image.

    The function returns a program's output. The programs see the host's certificates, as builds do. Files that they
    write are removed with the container.
    """
    ensure_stored(workshop, recipe)
    container = workshop.buildah("from", "--pull-never", recipe.reference, log=recipe.name)
    try:
        yield lambda *command: workshop.buildah(
            "run", "--user", "0", *certificates(), container, "--", *command, log=recipe.name
        )
    finally:
        workshop.buildah("rm", container, log=recipe.name)


def certificates() -> list[str]:
    """Return a mount of the host's trusted certificates.

    Behind a proxy that re-signs TLS connections, apt and pip fail without them.
    """
    return ["--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"] if _CERTIFICATES.is_dir() else []


def _named(names: Iterable[str]) -> list[Recipe]:
    names = list(names) or list(RECIPES)
    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        raise ImagesError(f"images: no image is named {', '.join(unknown)}; there are: {', '.join(RECIPES)}")
    return [RECIPES[name] for name in names]


def ensure_base(workshop: Workshop, base: Base) -> None:
    """Build the base image unless one with the current options exists."""
    log = f"base-{base.suite}"
    query = (
        "inspect",
        "--type=image",
        "--format",
        f'{{{{index .OCIv1.Config.Labels "{_BASE_LABEL}"}}}}',
        base.reference,
    )
    if workshop.succeeds(*query) and workshop.buildah(*query, log=log) == base.digest:
        return
    progress(log, "mmdebstrap (about 20 s)")
    start_s = time.monotonic()
    mirror = os.environ.get("HALCYON_DEBIAN_MIRROR")
    with tempfile.TemporaryDirectory(dir=workshop.directory) as scratch:
        tar = f"{scratch}/base.tar"
        workshop.run(("mmdebstrap", *base.options, base.suite, tar, *([mirror] if mirror else [])), log=log)
        container = workshop.buildah("from", "scratch", log=log)
        try:
            workshop.buildah("add", "-q", container, tar, "/", log=log)
            workshop.buildah(
                "config", "--env", f"PATH={_PATH}", "--label", f"{_BASE_LABEL}={base.digest}", container, log=log
            )
            workshop.buildah("commit", "-q", container, base.reference, log=log)
        finally:
            workshop.buildah("rm", container, log=log)
    progress(log, f"done in {time.monotonic() - start_s:.0f} s")


def _build(workshop: Workshop, recipe: Recipe) -> None:
    progress(recipe.name, "building")
    start_s = time.monotonic()
    digest = recipe.digest
    (workshop.directory / "logs" / f"{recipe.name}.log").unlink(missing_ok=True)
    before = _identity(workshop, recipe)
    workshop.buildah(*_build_arguments(recipe), log=recipe.name)
    if before and before != _identity(workshop, recipe):
        # Otherwise each change of the code would leave an old image behind. The removal fails, as intended, if the new
        # image uses its layers.
        workshop.succeeds("rmi", before)
    built_s = time.monotonic() - start_s

    target = archive(recipe, workshop.directory)
    partial = target.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    workshop.buildah("push", "-q", recipe.reference, f"oci-archive:{partial}:{recipe.reference}", log=recipe.name)
    partial.replace(target)
    (workshop.directory / f"{recipe.name}.inputs").write_text(digest + "\n")
    size_mib = target.stat().st_size / 2**20
    progress(recipe.name, f"done in {time.monotonic() - start_s:.0f} s (build {built_s:.0f} s), {size_mib:.0f} MiB")


def _identity(workshop: Workshop, recipe: Recipe) -> str:
    """Return the ID of the image with the recipe's name in the storage; empty if there is none."""
    identities = workshop.buildah(
        "images", "--quiet", "--no-trunc", "--filter", f"reference={recipe.reference}", log=recipe.name
    )
    return identities.partition("\n")[0]


def _build_arguments(recipe: Recipe) -> list[str]:
    arguments = ["build", "-q", "--layers", "--pull-never", "--tag", recipe.reference]
    arguments += ["--file", str(REPOSITORY / recipe.dockerfile), "--build-arg", f"BASE={recipe.base.reference}"]
    ignore = REPOSITORY / f"{recipe.dockerfile}.dockerignore"
    if ignore.exists():
        arguments += ["--ignorefile", str(ignore)]
    arguments += certificates()
    for setting in _PIP_SETTINGS:
        if setting in os.environ:
            arguments += ["--build-arg", setting]  # buildah reads the value itself, which may hold a password
    return [*arguments, str(REPOSITORY / recipe.context)]
