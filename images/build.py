"""mmdebstrap -> buildah -> OCI archive, each step only where its inputs changed.

Beside NAME.tar lies NAME.inputs, the digest of the inputs it was built from. buildah's storage (the cache of layers) is
our own and lies in the same directory, so that removing the directory removes everything.
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
# Where and how to find packages is the host's to say. The first stages alone see these, so no image records them.
_PIP_SETTINGS = ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
_CERTIFICATES = Path("/etc/ssl/certs")
_LINES_OF_AN_ERROR = 15


def progress(name: str, message: str) -> None:
    """One line for the person who waits."""
    print(f"images: {name}: {message}", flush=True)


class Workshop:
    """buildah on a storage of our own, with a log per image. One process at a time: see `locked`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._buildah = ("buildah", "--root", str(directory / "storage"), "--runroot", str(directory / "run"))
        # Without a daemon and inside containers there may be neither namespaces nor cgroups to make; a chroot is enough to build.
        self._environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Wait for other builds on the same cache, then keep them waiting."""
        with (self.directory / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def buildah(self, *arguments: str, log: str) -> str:
        """Run buildah; returns its stdout.

        Raises:
            ImagesError: it failed; the message ends with the last lines of the log.
        """
        return self.run((*self._buildah, *arguments), log=log)

    def succeeds(self, *arguments: str) -> bool:
        """Whether a buildah command succeeds, for questions such as `inspect`."""
        done = subprocess.run([*self._buildah, *arguments], env=self._environment, capture_output=True, check=False)
        return done.returncode == 0

    def run(self, command: Iterable[str], *, log: str) -> str:
        """Run a program with its stderr in logs/`log`.log; returns its stdout. Raises ImagesError as `buildah` does."""
        logs = self.directory / "logs"
        logs.mkdir(exist_ok=True)
        path = logs / f"{log}.log"
        with path.open("a") as stream:
            print("+", *command, file=stream, flush=True)
            begin = stream.tell()
            done = subprocess.run(
                list(command), env=self._environment, stdout=subprocess.PIPE, stderr=stream, text=True, check=False
            )
            stream.write(done.stdout)
        if done.returncode:
            said = path.read_bytes()[begin:].decode(errors="replace").splitlines()
            tail = "\n".join(said[-_LINES_OF_AN_ERROR:])
            raise ImagesError(f"images: {log}: failed with status {done.returncode}; the end of {path}:\n{tail}")
        return done.stdout.strip()


def build_images(names: Iterable[str] = (), *, fresh: bool = False) -> dict[str, Path]:
    """Bring the named images (default: all) up to date; returns the archives by name.

    `fresh` empties buildah's storage first (base images and cached layers), to take in Debian's updates.

    Raises:
        ImagesError: an unknown name, a machine that can't build, or a build that failed.
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
                _ensure_base(workshop, base)
            for recipe in stale:
                # Another process may have built it while we waited for the lock.
                if fresh or not is_current(recipe, directory):
                    _build(workshop, recipe)
    return {recipe.name: archive(recipe, directory) for recipe in recipes}


def archive(recipe: Recipe, directory: Path) -> Path:
    """Where the image's OCI archive lies."""
    return directory / f"{recipe.name}.tar"


def is_current(recipe: Recipe, directory: Path) -> bool:
    """Whether the archive is there and was built from the inputs as they are now."""
    stamp = directory / f"{recipe.name}.inputs"
    return archive(recipe, directory).exists() and stamp.exists() and stamp.read_text().strip() == recipe.digest


def ensure_stored(workshop: Workshop, recipe: Recipe) -> None:
    """Have the image in buildah's storage, from its archive if the storage was removed."""
    if not workshop.succeeds("inspect", "--type=image", recipe.reference):
        workshop.buildah("pull", "-q", f"oci-archive:{archive(recipe, workshop.directory)}", log=recipe.name)


@contextmanager
def container(workshop: Workshop, recipe: Recipe) -> Iterator[Callable[..., str]]:
    """The image's root, to run programs in it as root: a function of their arguments that gives what they say.

    They see the host's certificates, as builds do. What they write goes with the container.
    """
    ensure_stored(workshop, recipe)
    made = workshop.buildah("from", "--pull-never", recipe.reference, log=recipe.name)
    try:
        yield lambda *command: workshop.buildah(
            "run", "--user", "0", *_certificates(), made, "--", *command, log=recipe.name
        )
    finally:
        workshop.buildah("rm", made, log=recipe.name)


def _certificates() -> list[str]:
    """What the host trusts, others trust: behind a proxy that re-signs, apt and pip would fail without it."""
    return ["--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"] if _CERTIFICATES.is_dir() else []


def _named(names: Iterable[str]) -> list[Recipe]:
    names = list(names) or list(RECIPES)
    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        raise ImagesError(f"images: no image is named {', '.join(unknown)}; there are: {', '.join(RECIPES)}")
    return [RECIPES[name] for name in names]


def _ensure_base(workshop: Workshop, base: Base) -> None:
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
        # Else every change of our code would leave an image behind. Fails, rightly, where its layers serve the new one.
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
    """The id of the image that has the recipe's name in the storage; empty if none has."""
    found = workshop.buildah(
        "images", "--quiet", "--no-trunc", "--filter", f"reference={recipe.reference}", log=recipe.name
    )
    return found.partition("\n")[0]


def _build_arguments(recipe: Recipe) -> list[str]:
    arguments = ["build", "-q", "--layers", "--pull-never", "--tag", recipe.reference]
    arguments += ["--file", str(REPOSITORY / recipe.dockerfile), "--build-arg", f"BASE={recipe.base.reference}"]
    ignore = REPOSITORY / f"{recipe.dockerfile}.dockerignore"
    if ignore.exists():
        arguments += ["--ignorefile", str(ignore)]
    arguments += _certificates()
    for setting in _PIP_SETTINGS:
        if setting in os.environ:
            arguments += ["--build-arg", setting]  # buildah reads the value itself: it may hold a password
    return [*arguments, str(REPOSITORY / recipe.context)]
