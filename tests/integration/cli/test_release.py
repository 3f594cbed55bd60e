"""Parts of a release: values with digests, the krew manifest, checksums."""

import base64
import hashlib
import importlib.util
import json
import subprocess
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from e2e.cluster import binaries
from images import __main__ as images_command
from images.engine import Engine, kind_values
from images.host import ImagesError
from images.push import pushed
from images.recipes import RECIPES

ROOT = Path(__file__).resolve().parents[3]
DIGEST = "sha256:" + "a" * 64
IMAGES = {
    name: {"registry": "registry.example.com", "repository": f"ml/halcyon-{name}", "digest": DIGEST}
    for name in ("operator", "balancer", "bench")
}


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_values_of_a_release_name_images_by_digest_and_keep_all_else(release: ModuleType) -> None:
    text = (ROOT / "charts" / "halcyon" / "values.yaml").read_text()
    before, after = yaml.safe_load(text), yaml.safe_load(release.pinned(text, IMAGES))

    for name, image in IMAGES.items():
        assert {key: after["images"][name][key] for key in image} == image
        before["images"][name] |= image
    assert after == before
    assert len(release.pinned(text, IMAGES).splitlines()) == len(text.splitlines())


def test_the_chart_of_a_release_lists_its_images_and_keeps_all_else(release: ModuleType) -> None:
    text = (ROOT / "charts" / "halcyon" / "Chart.yaml").read_text()
    before, after = yaml.safe_load(text), yaml.safe_load(release.described(text, IMAGES))

    assert yaml.safe_load(after["annotations"].pop("artifacthub.io/images")) == [
        {"name": name, "image": f"registry.example.com/ml/halcyon-{name}@{DIGEST}"} for name in IMAGES
    ]
    assert after == before


@pytest.mark.parametrize("name", ["halcyon", "halcyon-crds"])
def test_a_charts_icon_is_the_one_of_the_dashboard(name: str) -> None:
    document = yaml.safe_load((ROOT / "charts" / name / "Chart.yaml").read_text())
    head, _, data = document["icon"].partition(",")

    assert head == "data:image/svg+xml;base64"
    icon = ROOT / "operator" / "halcyon" / "dashboard" / "static" / "icon.svg"
    assert base64.b64decode(data, validate=True) == icon.read_bytes().strip()
    assert {"home", "maintainers", "keywords", "kubeVersion"} <= document.keys()


def test_values_without_an_image_are_refused(release: ModuleType) -> None:
    with pytest.raises(release.ReleaseError, match=r"lacks images\.balancer\.digest"):
        release.pinned("images:\n  operator:\n    registry: x\n    repository: x\n    digest: x\n", IMAGES)


def test_the_krew_manifest_has_the_checksum_of_its_archive(release: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "cli"
    folder.mkdir()
    program = folder / "halcyon-linux-x86_64-py311"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    manifest = yaml.safe_load(release.krew(program, folder).read_text())

    (place,) = manifest["spec"]["platforms"]
    archive = folder / place["uri"].rpartition("/")[2]
    assert place["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert manifest["spec"]["version"] == f"v{release.version()}"
    with tarfile.open(archive) as tar:
        assert tar.getmember(place["bin"]).mode & 0o111
        assert {"LICENSE", place["bin"]} == set(tar.getnames())


@pytest.mark.more
def test_krews_own_validation_accepts_the_manifest_of_a_release(release: ModuleType, tmp_path: Path) -> None:
    """Without the installation, for which the archive would have to be published."""
    folder = tmp_path / "cli"
    folder.mkdir()
    program = folder / "halcyon-linux-x86_64-py311"
    program.write_text("#!/bin/sh\n")
    command = [str(binaries.extra_program("validate-krew-manifest")), "-skip-install", "-manifest"]
    manifest = release.krew(program, folder)
    subprocess.run([*command, str(manifest)], check=True, capture_output=True, timeout=60)

    manifest.write_text(manifest.read_text().replace("sha256: ", "sha256: x"))
    refused = subprocess.run([*command, str(manifest)], check=False, capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0
    assert "sha256" in refused.stderr


def test_checksums_cover_every_file_but_their_own(release: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").write_text("1")
    (tmp_path / "SHA256SUMS").write_text("old")

    assert release.checksums(tmp_path) == f"{hashlib.sha256(b'1').hexdigest()}  a/one\n"


def test_images_of_a_kind_cluster_have_no_pushed_references(tmp_path: Path) -> None:
    values = tmp_path / "images-values.yaml"
    values.write_text(yaml.safe_dump(kind_values()))
    with pytest.raises(
        ImagesError, match=r"images-values\.yaml: images\.balancer has no digest; push first: make push"
    ):
        pushed(values)


@pytest.mark.parametrize("engine", [(), ("--with", "podman")])
def test_platforms_of_a_push_need_docker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], engine: tuple[str, ...]
) -> None:
    pushes: list[str] = []
    monkeypatch.setattr(images_command, "push_images", lambda **_: pushes.append("for one platform"))
    arguments = ["push", "--registry", "registry.example.com/ml", "--platforms", "linux/amd64,linux/arm64"]
    monkeypatch.setattr("sys.argv", ["images", *arguments, *engine])
    assert (images_command.main(), pushes) == (1, [])
    assert "--platforms linux/amd64,linux/arm64 needs --with docker" in capsys.readouterr().err


def docker_script(folder: Path, answer: str) -> Engine:
    """Return an engine that writes its arguments into the file `calls`, and otherwise does what `answer` says."""
    program = folder / "docker"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{answer}\n')
    program.chmod(0o755)
    return Engine(str(program))


@pytest.mark.parametrize(
    "registry", ["docker.io/me", "index.docker.io/me", "docker.io/library", "registry.example.com/me"]
)
def test_digests_of_a_push_by_docker_are_those_of_its_short_names(tmp_path: Path, registry: str) -> None:
    """For an image on Docker Hub, `docker image inspect` omits the host, and `library`."""
    short = {"docker.io/library": "", "registry.example.com/me": "registry.example.com/me/"}.get(registry, "me/")
    docker = docker_script(tmp_path, f'[ "$1" != image ] || echo "other@sha256:b {short}halcyon-bench@{DIGEST}"')

    assert docker.push("localhost/halcyon-bench:dev", f"{registry}/halcyon-bench:dev") == DIGEST


def test_builds_for_several_platforms_get_the_settings_of_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example.com/simple")
    writes = 'while [ "$1" != --metadata-file ]; do shift; done; echo "$METADATA" > "$2"'
    monkeypatch.setenv("METADATA", json.dumps({"containerimage.digest": DIGEST}))
    docker = docker_script(tmp_path, writes)

    assert (
        docker.push_for(RECIPES["operator"], "registry.example.com/operator:dev", "linux/amd64,linux/arm64") == DIGEST
    )
    assert "--build-arg=PIP_INDEX_URL --file" in (tmp_path / "calls").read_text()


def test_a_release_needs_pushed_images_with_digests(release: ModuleType, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    with pytest.raises(release.ReleaseError, match="push the images first"):
        release.images_of(values)
    values.write_text(yaml.safe_dump({"images": IMAGES}))
    assert release.images_of(values) == IMAGES
    values.write_text(
        yaml.safe_dump({"images": IMAGES | {"balancer": {"registry": "x", "repository": "y", "tag": "dev"}}})
    )
    with pytest.raises(release.ReleaseError, match=r"images\.balancer in .* has no digest"):
        release.images_of(values)
