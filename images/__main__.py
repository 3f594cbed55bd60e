"""Command line of the image builds: `python -m images build|kind|push|pushed|sbom|audit`."""

import argparse
import sys
from pathlib import Path

from images import sbom
from images.audit import Finding, findings
from images.build import build_images
from images.engine import ENGINES, find_engine, load_into_kind, push_with
from images.host import ImagesError
from images.push import push_images, pushed
from images.recipes import RECIPES

VALUES = Path("build/images-values.yaml")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m images", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="bring the OCI archives in the cache up to date")
    build.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help=f"only these of: {', '.join(RECIPES)} (default: all)"
    )
    build.add_argument(
        "--fresh", action="store_true", help="build all from new base images, to take in Debian's updates"
    )
    push = commands.add_parser("push", help="push to a registry and write Helm values with digests")
    push.add_argument("--registry", required=True, help="host and path, such as registry.example.com/ml")
    push.add_argument("--values", type=Path, default=VALUES, help="default: %(default)s")
    push.add_argument("--plain-http", action="store_true", help="the registry has no TLS (a test's own, on loopback)")
    push.add_argument("--platforms", default="", help="with --with docker, by buildx: such as linux/amd64,linux/arm64")
    kind = commands.add_parser("kind", help="build with docker or podman, and load into the nodes of a kind cluster")
    kind.add_argument("--cluster", default="kind", metavar="NAME", help="default: %(default)s")
    kind.add_argument("--values", type=Path, default=VALUES, help="default: %(default)s")
    for command in (kind, push):
        command.add_argument("--with", dest="engine", choices=ENGINES, default="", help="build with this program")
    pushed_command = commands.add_parser(
        "pushed", help="list what was pushed: NAME REGISTRY/REPOSITORY@DIGEST, a line each"
    )
    pushed_command.add_argument("--values", type=Path, default=VALUES, help="what push wrote; default: %(default)s")
    sbom = commands.add_parser("sbom", help="write what is in the images, as CycloneDX documents")
    sbom.add_argument("--only", nargs="+", default=[], metavar="NAME", choices=list(RECIPES), help="only these")
    sbom.add_argument("--to", type=Path, default=Path("build/sbom"), metavar="FOLDER", help="default: %(default)s")
    commands.add_parser("audit", help="list the packages that Debian has updated since the images were built")
    return parser


def _print_updates(updates: list[Finding]) -> int:
    for finding in updates:
        print(f"{finding.image}: {finding.update}")
    print(f"audit: {len(updates)} findings" + ("; python -m images build --fresh takes them in" if updates else ""))
    return 1 if updates else 0


def _push(arguments: argparse.Namespace) -> None:
    """Push the images. buildah builds them, or the program of `--with`; for several platforms, only docker can."""
    if arguments.platforms and arguments.engine != "docker":
        raise ImagesError(
            f"images: --platforms {arguments.platforms} needs --with docker, whose buildx builds for several; "
            "for example: make push WITH=docker REGISTRY=... PLATFORMS=linux/amd64,linux/arm64"
        )
    if arguments.engine:
        engine = find_engine(arguments.engine)
        push_with(engine, registry=arguments.registry, values=arguments.values, platforms=arguments.platforms)
    else:
        push_images(registry=arguments.registry, values=arguments.values, plain_http=arguments.plain_http)


def main() -> int:
    arguments = _parser().parse_args()
    try:
        if arguments.command == "build":
            for path in build_images(arguments.only, fresh=arguments.fresh).values():
                print(path)
        elif arguments.command == "audit":
            return _print_updates(findings())
        elif arguments.command == "pushed":
            for name, reference in pushed(arguments.values).items():
                print(name, reference)
        elif arguments.command == "sbom":
            for path in sbom.write(arguments.only, arguments.to):
                print(path)
        elif arguments.command == "kind":
            load_into_kind(find_engine(arguments.engine), cluster=arguments.cluster, values=arguments.values)
        else:
            _push(arguments)
    except ImagesError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
