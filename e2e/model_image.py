"""Images that contain only a model, built as described in docs/guides/model-images.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from images.build import Workshop
from images.host import images_directory, prepare

_LOG = "model"


def build(reference: str, files: Mapping[str, bytes], directory: Path) -> Path:
    """Build the image from these files, given by their paths in it, and return its OCI archive.

    Args:
        reference: name of the image.
        files: the model's folder.
        directory: an empty folder for input and output.

    Raises:
        ImagesError: this machine can't build images, or the build failed.
    """
    folder, archive = directory / "model", directory / "model.tar"
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    dockerfile = directory / "Dockerfile"
    dockerfile.write_text("FROM scratch\nCOPY model /\n")
    prepare(images_directory())
    workshop = Workshop(images_directory())
    with workshop.locked():
        workshop.buildah("build", "-q", "--tag", reference, "--file", str(dockerfile), str(directory), log=_LOG)
        try:
            workshop.buildah("push", "-q", reference, f"oci-archive:{archive}:{reference}", log=_LOG)
        finally:
            workshop.buildah("rmi", reference, log=_LOG)
    return archive
