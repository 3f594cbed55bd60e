"""Entry point of `halcyon fetch`, the process in the init container.

On success, the exit code is 0, and stdout contains a summary line. For a stateful model, the termination log contains
`sequence_batching.REPORT`. On failure, the exit code is 1, and stderr and the termination log contain a line of JSON:
`{"reason": ..., "message": ...}`. The operator reads the termination log.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from halcyon.api.documents.model_overlay import Overlay, OverlayError
from halcyon.api.documents.repository_marker import COMPLETE, INSTANCES
from halcyon.api.documents.store_identity import StoreIdentity
from halcyon.api.sequence_batching import REPORT, in_config
from halcyon.fetch import (
    auto_complete,
    backend_policy,
    config_check,
    ensemble_steps,
    mounted_source,
    repository,
    source_repository,
)
from halcyon.fetch.errors import DocumentError, FetchError, SourceError, report
from halcyon.model_config import config_pbtxt, ensemble, merged_config, threads, versions
from halcyon.model_config.errors import ModelConfigError, ModelError
from halcyon.model_config.merge import backend_of

if TYPE_CHECKING:
    from halcyon.fetch.download import Remote

_MAX_OVERLAY_BYTES = 1024 * 1024
_TERMINATION_LOG = Path("/dev/termination-log")
"""Kubernetes' default path of the termination log."""


@dataclass(frozen=True)
class Request:
    """Input of a run of the fetcher, from the command line."""

    source: Path
    """Folder at which the source is mounted, or into which the model is downloaded."""
    path: str | None
    """Folder of the model inside the source; None for the source's top folder."""
    overlay: Path
    """Path of the file with the overlay."""
    repository: Path
    """Path of Triton's model repository."""
    backends: frozenset[str] | None = None
    """Backends that the site allows; None if it allows all."""
    remote: Remote | None = None
    """Model to download first; None if the source is mounted and nothing is downloaded."""


def main(argv: Sequence[str]) -> int:
    """Run `halcyon fetch` with these arguments; return the exit code."""
    log: Path | None = None
    try:
        request, log = _arguments(argv)
        summary, is_stateful = fetch(request)
        print(summary)  # noqa: T201
        if is_stateful:
            _write_report(REPORT, log)
    except ModelError as error:
        return _fail(error, log)
    except Exception as error:  # noqa: BLE001  # any error must be reported to the model's owner in a condition
        traceback.print_exc()
        return _fail(FetchError(f"{type(error).__name__}: {error}"), log)
    return 0


def fetch(request: Request) -> tuple[str, bool]:
    """Create the folder of the model in Triton's model repository.

    Return a summary of the run, and whether the model keeps state between requests.

    Raises:
        ModelError: the model's folder could not be created, and is not in the repository.
    """
    overlay = _overlay(request.overlay)
    if request.remote is not None:
        _download(request.remote, request.source)
    models = source_repository.read(request.source, request.path, overlay.model_name)
    folder = models.served
    content, note = merged_config.of(folder.config, overlay, backend_of_file=mounted_source.backend_of_file(folder))
    configs = {overlay.model_name: content} | {name: other.config for name, other in models.companions.items()}
    folders = {overlay.model_name: folder, **models.companions}
    for name, source_folder in folders.items():
        with source_repository.errors_of(name) if len(folders) > 1 else nullcontext():
            config_check.check_literals(configs[name] or b"")
        policy = overlay.version_policy if source_folder is folder else None
        if problem := versions.problem(name, configs[name], policy, source_folder.versions, source_folder.left_out):
            raise SourceError(problem)
    if problem := ensemble.missing_step(configs):
        raise SourceError(problem)
    if problem := ensemble_steps.problem(configs, folders):
        raise ModelConfigError(problem)
    if request.backends is not None:
        _check_backends(folders, configs, request.backends)
    for name, source_folder in folders.items():
        with source_repository.errors_of(name) if len(folders) > 1 else nullcontext():
            config_check.check_references(configs[name], source_folder, request.source)
    complete = auto_complete.are_complete((configs[name], folders[name]) for name in folders)
    repository.remove_others(request.repository, folders)
    repository.mark(request.repository, COMPLETE, is_set=complete)
    instances = _instances(folders, configs)
    repository.mark(request.repository, INSTANCES, is_set=instances > 1, text=f"{instances}\n")
    for name, other in models.companions.items():
        repository.assemble(request.repository, name, other, other.config)
    model_folder = repository.assemble(request.repository, overlay.model_name, folder, content)
    _link_environments(request.repository, folders, configs)
    summary = _summary(models, model_folder, note)
    if complete:
        summary += "; loaded without auto-complete, because nothing is missing"
    texts = (config.decode(errors="replace") for config in configs.values() if config is not None)
    return summary, any(map(in_config, texts))


def _link_environments(
    path: Path, folders: Mapping[str, mounted_source.ModelFolder], configs: Mapping[str, bytes | None]
) -> None:
    """Link the packed Python environments that lie beside the folders of the models into the repository at `path`."""
    for name, folder in folders.items():
        if environment := config_check.environment_beside(configs[name]):
            repository.link_beside(path, folder, environment)


def _summary(models: source_repository.SourceModels, model_folder: Path, note: str) -> str:
    folder = models.served
    links = sum(path.is_symlink() for path in model_folder.iterdir())
    parts = [
        f"{model_folder}: {note}",
        f"links into {folder.path}: {links}",
        f"versions: {', '.join(map(str, folder.versions))}",
    ]
    if repository.STUB in folder.names:
        parts.append(f"{repository.STUB} is the model's own")
    if folder.left_out:
        parts.append(f"left out, as version folders without files or with other names: {', '.join(folder.left_out)}")
    if models.companions:
        parts.append(f"models loaded with it: {', '.join(models.companions)}")
    return "; ".join(parts)


def _instances(folders: Mapping[str, mounted_source.ModelFolder], configs: Mapping[str, bytes | None]) -> int:
    """Return the number of instances of all models together in a pod without GPUs."""
    count = 0
    for name, folder in folders.items():
        try:
            config = config_pbtxt.parse(configs[name] or b"", with_unknown=True)
        except ModelError:  # newer than this version, and used unchanged
            count += 1
            continue
        count += threads.instances(config, backend_of(config) or mounted_source.backend_of_file(folder))
    return count


def _check_backends(
    folders: Mapping[str, mounted_source.ModelFolder], configs: Mapping[str, bytes | None], allowed: frozenset[str]
) -> None:
    for name, folder in folders.items():
        with source_repository.errors_of(name) if len(folders) > 1 else nullcontext():
            backend_policy.check(configs[name] or b"", folder, allowed)


def _download(remote: Remote, folder: Path) -> None:
    from halcyon.fetch.download import download  # noqa: PLC0415  # takes 16 MB, and is not needed for a mounted model

    begun = time.monotonic()
    size = download(remote, folder, lambda progress: print(progress.line(remote.url), flush=True)) / 2**20  # noqa: T201
    took_s = time.monotonic() - begun
    print(f"{remote.url}: {size:.1f} MiB in {took_s:.1f} s ({size / max(took_s, 1e-3):.0f} MiB/s)", flush=True)  # noqa: T201


def _remote(args: argparse.Namespace) -> Remote | None:
    if args.url is None:
        return None
    from halcyon.fetch.download import Remote  # noqa: PLC0415  # see above
    from halcyon.fetch.egress_proxy import SiteProxy  # noqa: PLC0415  # see above

    return Remote(
        args.url,
        args.endpoint,
        args.region,
        args.sha256,
        args.limit_bytes,
        args.credentials,
        None if args.identity is None else StoreIdentity.from_json(args.identity),
        args.token,
        args.private,
        None if args.proxy is None else SiteProxy(args.proxy, tuple(filter(None, args.no_proxy.split(",")))),
        args.ca,
        args.secret,
    )


def _overlay(path: Path) -> Overlay:
    try:
        with path.open("rb") as file:
            return Overlay.from_json(file.read(_MAX_OVERLAY_BYTES))
    except OSError as error:
        raise DocumentError(f"overlay {path} can't be read: {error.strerror}") from error
    except OverlayError as error:
        raise DocumentError(str(error)) from error


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise FetchError(f"fetch: {message}")


def _arguments(argv: Sequence[str]) -> tuple[Request, Path | None]:
    parser = _Parser(prog="halcyon fetch", description="Bring a model into a Triton pod.", allow_abbrev=False)
    parser.add_argument("--source", type=Path, required=True, help="mount path of the model's source")
    parser.add_argument("--path", help="folder of the model inside the source")
    parser.add_argument("--overlay", type=Path, required=True, help="file with the ModelDeployment's overlay")
    parser.add_argument("--repository", type=Path, required=True, help="Triton's model repository")
    parser.add_argument("--backends", help="backends that the site allows, separated by commas; default: all")
    parser.add_argument(
        "--url",
        help="model to download to --source: s3://BUCKET/FOLDER, gs://..., az://..., hf://..., mlflow://... or https://HOST/PATH.tar.gz",
    )
    parser.add_argument("--endpoint", help="address of the store or registry; default: AWS, Google or Hugging Face")
    parser.add_argument("--region", help="region of the bucket; default: us-east-1")
    parser.add_argument("--sha256", help="SHA-256 of the archive, in hexadecimal")
    parser.add_argument(
        "--limit-bytes", type=int, default=20 * 2**30, help="maximum bytes to write; default: %(default)s"
    )
    parser.add_argument("--credentials", type=Path, help="folder with the Secret's keys as files")
    parser.add_argument("--secret", default="", help="name of this Secret, for error messages")
    parser.add_argument("--identity", help="identity for which the service account's token is exchanged, as JSON")
    parser.add_argument("--token", type=Path, help="file with the service account's token")
    parser.add_argument("--proxy", help="URL of the site's HTTP proxy; default: connect directly")
    parser.add_argument("--no-proxy", default="", help="hosts that are reached without the proxy, separated by commas")
    parser.add_argument("--ca", type=Path, help="file with the site's CA certificates")
    parser.add_argument("--private", action="store_true", help="the server may be in a private network")
    parser.add_argument("--termination-log", type=Path, help="file for the reason of a failure")
    args = parser.parse_args(argv)
    allowed = None if args.backends is None else frozenset(filter(None, args.backends.split(",")))
    request = Request(args.source, args.path, args.overlay, args.repository, allowed, _remote(args))
    return request, args.termination_log


def _fail(error: ModelError, log: Path | None) -> int:
    text = report(error)
    print(text, file=sys.stderr)  # noqa: T201
    _write_report(text, log)
    return 1


def _write_report(text: str, log: Path | None) -> None:
    """Write a report to the container's termination log, which the operator reads."""
    try:
        if log is not None:
            log.write_text(text)
        elif _TERMINATION_LOG.exists():  # do not create it: outside a container, /dev must not get files
            _TERMINATION_LOG.write_text(text)
    except OSError as failure:
        print(f"fetch: termination log: {failure}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
