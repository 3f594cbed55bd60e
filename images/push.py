"""Push of the images to a registry, and the Helm values that refer to them by digest."""

import tempfile
from pathlib import Path

import yaml

from images.build import Workshop, build_images, ensure_stored, progress
from images.host import ImagesError, images_directory, prepare
from images.recipes import RECIPES, Recipe


def push_images(*, registry: str, values: Path, plain_http: bool = False) -> None:
    """Build outdated images, push every image that a chart uses, and write `values`.

    `registry` is a host with an optional path (`registry.example.com/ml`). Credentials are those that buildah finds:
    from `buildah login`, from `docker login`, or in the file $REGISTRY_AUTH_FILE. The written file maps
    `images.operator`, `images.balancer`, `images.bench` and `test.image` to `registry`, `repository` and `digest`.

    Raises:
        ImagesError: a build or a push failed. `values` is written only after all pushes have succeeded.
    """
    recipes = [recipe for recipe in RECIPES.values() if recipe.values_key]
    build_images(recipe.name for recipe in recipes)
    directory = images_directory()
    prepare(directory)
    workshop = Workshop(directory)
    image_values: dict[str, dict[str, dict[str, str]]] = {}
    with workshop.locked():
        for recipe in recipes:
            repository, tag = _target(recipe, registry)
            progress(recipe.name, f"pushing to {repository}:{tag}")
            digest = _push(workshop, recipe, target=f"{repository}:{tag}", plain_http=plain_http)
            host, _, path = repository.partition("/")
            section, _, key = recipe.values_key.partition(".")
            image_values.setdefault(section, {})[key] = {"registry": host, "repository": path, "digest": digest}
    values.parent.mkdir(parents=True, exist_ok=True)
    values.write_text(
        "# Written by `make images push`; give it to helm with --values.\n" + yaml.safe_dump(image_values)
    )
    print(f"images: wrote {values}", flush=True)


def pushed(values: Path) -> dict[str, str]:
    """Return the references (REGISTRY/REPOSITORY@DIGEST) of the pushed images by name, from the file of `push_images`.

    Raises:
        ImagesError: the file doesn't exist, or has an image without a digest, like the file of `make kind`.
    """
    try:
        image_values = yaml.safe_load(values.read_text())
    except OSError as error:
        raise ImagesError(f"images: {values}: {error.strerror}; push first: make push REGISTRY=...") from error
    references = {}
    for recipe in (recipe for recipe in RECIPES.values() if recipe.values_key):
        section, _, key = recipe.values_key.partition(".")
        try:
            references[recipe.name] = "{registry}/{repository}@{digest}".format(**image_values[section][key])
        except (KeyError, TypeError):
            raise ImagesError(
                f"images: {values}: {recipe.values_key} has no digest; push first: make push REGISTRY=..."
            ) from None
    return references


def push_image(name: str, target: str) -> None:
    """Push the image with this name to `target` (HOST/REPOSITORY:TAG), for example to a mirror under another name.

    Raises:
        ImagesError: the push failed.
    """
    directory = images_directory()
    prepare(directory)
    workshop = Workshop(directory)
    with workshop.locked():
        _push(workshop, RECIPES[name], target=target, plain_http=False)


def _target(recipe: Recipe, registry: str) -> tuple[str, str]:
    """Return the repository and the tag in the registry. The registry's name replaces the prefix `localhost/`."""
    name, tag = recipe.reference.removeprefix("localhost/").split(":")
    return f"{registry.rstrip('/')}/{name}", tag


def _push(workshop: Workshop, recipe: Recipe, *, target: str, plain_http: bool) -> str:
    ensure_stored(workshop, recipe)
    with tempfile.TemporaryDirectory(dir=workshop.directory) as scratch:
        digest = Path(scratch) / "digest"
        security = ["--tls-verify=false"] if plain_http else []
        workshop.buildah(
            "push",
            "-q",
            *security,
            "--digestfile",
            str(digest),
            recipe.reference,
            f"docker://{target}",
            log=recipe.name,
        )
        return digest.read_text().strip()
