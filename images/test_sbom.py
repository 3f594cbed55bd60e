"""Bills of materials: they list what dpkg and Python list in the image, completely, and the same each time."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from images import archives, packages, sbom
from images.build import Workshop, build_images, container
from images.host import images_directory, prepare
from images.recipes import RECIPES, REPOSITORY

DESCRIBED = ("operator", "bench", "balancer", "tritonserver-cpu")
PYTHONS = {
    "operator": "/opt/halcyon/bin/python",
    "bench": "/opt/halcyon/bin/python",
    "tritonserver-cpu": "/opt/triton/bin/python",
}
DROPPED = {"numpy", "ml-dtypes", "python-rapidjson"}
"""Of the operator's lock, what its Dockerfile takes out again."""
_ASK_PYTHON = "import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions()]"


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sbom")
    return {path.name.removesuffix(".cdx.json"): json.loads(path.read_text()) for path in sbom.write((), folder)}


def components(document: dict[str, Any], kind: str) -> set[tuple[str, str]]:
    return {(c["name"], c["version"]) for c in document["components"] if c.get("purl", "").startswith(f"pkg:{kind}/")}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", DESCRIBED)
def test_it_tells_the_packages_that_dpkg_and_python_find_in_the_image(documents: dict[str, Any], name: str) -> None:
    build_images([name])
    prepare(images_directory())
    workshop = Workshop(images_directory())
    with workshop.locked(), container(workshop, RECIPES[name]) as run:
        dpkg_output = run("dpkg-query", "-W", "-f", "${Package} ${Version}\\n")
        python_output = run(PYTHONS[name], "-c", _ASK_PYTHON) if name in PYTHONS else ""

    assert components(documents[name], "deb") == {tuple(line.split()) for line in dpkg_output.splitlines()}
    assert components(documents[name], "pypi") == {
        (plain(package), version) for package, version in (line.split() for line in python_output.splitlines())
    }


def test_nothing_of_python_is_in_the_operator_that_is_not_locked(documents: dict[str, Any]) -> None:
    lock = (REPOSITORY / "requirements" / "operator.lock").read_text()
    locked = {
        (plain(name), version) for name, version in re.findall(r"^([a-z0-9._-]+)==([^ ;\\]+)", lock, re.MULTILINE)
    }
    installed = components(documents["operator"], "pypi")

    assert {name for name, _ in installed - locked} == {"halcyon-core", "halcyon-operator", "halcyon-sidecars"}
    assert not DROPPED & {name for name, _ in installed}


def test_the_chart_library_is_told_of_as_it_is_pinned(documents: dict[str, Any]) -> None:
    locked = json.loads((REPOSITORY / "requirements" / "package-lock.json").read_text())["packages"][
        "node_modules/uplot"
    ]
    npm_packages = [c for c in documents["operator"]["components"] if c.get("purl", "").startswith("pkg:npm/")]

    assert [(c["name"], c["version"]) for c in npm_packages] == [("uplot", locked["version"])]
    assert npm_packages[0]["licenses"] == [{"license": {"id": locked["license"]}}]
    assert components(documents["balancer"], "npm") == set()


@pytest.mark.parametrize("name", DESCRIBED)
def test_every_file_that_could_be_run_has_a_package_or_stands_by_itself(documents: dict[str, Any], name: str) -> None:
    image = archives.read(images_directory() / f"{name}.tar", packages.is_metadata)
    owned = set().union(*(package.files for package in packages.installed_packages(image.files)))
    loose = {c["name"].lstrip("/"): c for c in documents[name]["components"] if c["type"] == "file"}

    for path, file in image.files.items():
        if path.startswith(("usr/", "opt/")) and "__pycache__" not in path and path not in owned:
            assert loose[path]["hashes"] == [{"alg": "SHA-256", "content": file.sha256}]
    assert len(loose) < 10, "a package that nobody knows of: have its installer write a record"
    assert not any(re.search(r"\.so(\.|$)", path) for path in loose)


@pytest.mark.parametrize("name", DESCRIBED)
def test_who_needs_whom_is_told_of_everything(documents: dict[str, Any], name: str) -> None:
    document = documents[name]
    needs = {entry["ref"]: set(entry.get("dependsOn", ())) for entry in document["dependencies"]}
    refs = {c["bom-ref"] for c in document["components"]}

    assert needs[document["metadata"]["component"]["bom-ref"]] == refs
    assert needs.keys() == refs | {document["metadata"]["component"]["bom-ref"]}
    haproxy = [ref for ref in refs if "/haproxy@" in ref]
    assert len(haproxy) == (name == "balancer")
    for ref in haproxy:
        assert any("/libssl3" in need for need in needs[ref])


def test_the_same_archive_gives_the_same_document(tmp_path: Path) -> None:
    first, second = (sbom.write(["balancer"], tmp_path / side)[0].read_bytes() for side in ("one", "other"))
    assert first == second


def test_licences_are_told_where_a_package_tells_them(documents: dict[str, Any]) -> None:
    """Of Python's packages all do; Debian's whose copyright file is prose can't be read by a program."""
    for name in ("operator", "bench", "tritonserver-cpu"):
        silent = [
            c["name"]
            for c in documents[name]["components"]
            if c.get("purl", "").startswith("pkg:pypi/") and not c.get("licenses")
        ]
        assert silent == []


def layer(*entries: tuple[str, bytes | None]) -> bytes:
    """Return a layer of files; None as content makes a directory."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as members:
        for path, content in entries:
            member = tarfile.TarInfo(path)
            if content is None:
                member.type = tarfile.DIRTYPE
            else:
                member.size = len(content)
            members.addfile(member, io.BytesIO(content or b""))
    return archive.getvalue()


def oci(path: Path, *layers: bytes) -> Path:
    blobs: dict[str, bytes] = {}

    def keep(content: bytes) -> dict[str, str]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        blobs[f"blobs/{digest.replace(':', '/')}"] = content
        return {"digest": digest}

    config = keep(json.dumps({"created": "2026-01-02T03:04:05.6Z"}).encode())
    manifest = keep(json.dumps({"config": config, "layers": [keep(content) for content in layers]}).encode())
    blobs["index.json"] = json.dumps({"manifests": [manifest]}).encode()
    with tarfile.open(path, "w") as outer:
        for name, content in blobs.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            outer.addfile(member, io.BytesIO(content))
    return path


def test_an_image_is_read_as_a_container_sees_it(tmp_path: Path) -> None:
    archive = oci(
        tmp_path / "image.tar",
        layer(("etc", None), ("etc/kept", b"1"), ("etc/gone", b"1"), ("opt/old/a", b"1"), ("opt/cleared/a", b"1"), ("was/a", b"1")),
        layer(("etc/.wh.gone", b""), ("opt/.wh.old", b""), ("opt/cleared/.wh..wh..opq", b""), ("opt/cleared/b", b"2"), ("etc/kept", b"2")),
    )  # fmt: skip
    image = archives.read(archive, lambda path: path == "etc/kept")

    assert image.files.keys() == {"etc/kept", "opt/cleared/b", "was/a"}
    assert image.files["etc/kept"].content == b"2"
    assert image.files["was/a"] == archives.File(1, hashlib.sha256(b"1").hexdigest())
    assert image.created == "2026-01-02T03:04:05.6Z"
