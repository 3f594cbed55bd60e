"""Bill of materials of an image's archive, as CycloneDX 1.6 in JSON.

It lists the contents of the archive, not those that the recipe requests. The same archive gives the same document.
Files that belong to no package and could be executed or loaded (below /usr and /opt) are listed one by one. Other files
without a package (configuration, dpkg's lists, certificates) are only counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.exceptions import InvalidSpdxLicenseException
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.exception import MissingOptionalDependencyException
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.model.lifecycle import LifecyclePhase, PredefinedLifecycle
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from images import packages
from images.archives import Image, read
from images.build import archive, build_images
from images.host import ImagesError, images_directory
from images.packages import Package
from images.recipes import RECIPES

_PREFIX = "halcyon:image:"
_RUN = ("usr/", "opt/")


def write(names: Iterable[str], folder: Path) -> list[Path]:
    """Build these images if they are outdated (default: all that a chart uses), and write NAME.cdx.json for each.

    Raises:
        ImagesError: a build failed, or a document would be invalid.
    """
    recipes = [RECIPES[name] for name in names or (r.name for r in RECIPES.values() if r.values_key)]
    build_images(recipe.name for recipe in recipes)
    folder.mkdir(parents=True, exist_ok=True)
    documents = []
    for recipe in recipes:
        image = read(archive(recipe, images_directory()), packages.is_metadata)
        path = folder / f"{recipe.name}.cdx.json"
        path.write_text(document(recipe.reference.removeprefix("localhost/"), image))
        documents.append(path)
    return documents


def document(reference: str, image: Image) -> str:
    """Return the document of an image with the name `reference`, NAME:TAG.

    Raises:
        ImagesError: the document violates CycloneDX's schema.
    """
    name, _, tag = reference.partition(":")
    root = Component(name=name, version=tag, type=ComponentType.CONTAINER, bom_ref=image.identity)
    bom = Bom(
        serial_number=uuid5(NAMESPACE_URL, image.identity),
        metadata=BomMetaData(
            component=root,
            timestamp=datetime.fromisoformat(image.created[:19] + "+00:00"),
            tools=ToolRepository(components=[Component(name="halcyon-images", type=ComponentType.APPLICATION)]),
            lifecycles=[PredefinedLifecycle(LifecyclePhase.POST_BUILD)],
        ),
    )
    installed = packages.installed_packages(image.files)
    components = {str(package.purl): _component(package) for package in installed}
    loose, other_files = _unowned(image, installed)
    bom.components.update(components.values(), loose)
    bom.register_dependency(root, [*components.values(), *loose])
    for package in installed:
        bom.register_dependency(components[str(package.purl)], [components[need] for need in package.needs])
    bom.properties.add(Property(name=f"{_PREFIX}id", value=image.identity))
    bom.properties.add(Property(name=f"{_PREFIX}other-files", value=str(other_files)))
    text = JsonV1Dot6(bom).output_as_string(indent=2) + "\n"
    try:
        schema_error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    except MissingOptionalDependencyException as error:
        raise ImagesError(f"images: {reference}: the document can't be checked: {error}") from error
    if schema_error is not None:
        raise ImagesError(f"images: {reference}: no valid document: {schema_error}")
    return text


def _component(package: Package) -> Component:
    purl = package.purl
    return Component(
        name=purl.name,
        group=purl.namespace,
        version=purl.version,
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=str(purl),
        description=package.summary or None,
        licenses=_licences(package.licences),
    )


def _licences(declared: tuple[str, ...]) -> list[License]:
    factory = LicenseFactory()
    licences: list[License] = [factory.make_from_string(text) for text in declared]
    # If there are several licences, each is a separate entry: an expression must be the only entry.
    return licences if len(licences) == 1 else [_named(factory, text) for text in declared]


def _named(factory: LicenseFactory, text: str) -> License:
    try:
        return factory.make_with_id(text)
    except InvalidSpdxLicenseException:
        return factory.make_with_name(text)


def _unowned(image: Image, installed: list[Package]) -> tuple[list[Component], int]:
    """Return the files without a package that could be executed or loaded, and the number of others without one."""
    owned: set[str] = set().union(*(package.files for package in installed))
    unowned = [path for path in image.files if path not in owned and not _is_byte_code(path, owned)]
    loose = [path for path in unowned if path.startswith(_RUN)]
    return [
        Component(
            name=f"/{path}",
            type=ComponentType.FILE,
            bom_ref=f"/{path}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=image.files[path].sha256)],
        )
        for path in loose
    ], len(unowned) - len(loose)


def _is_byte_code(path: str, owned: set[str]) -> bool:
    """Return True if a file is the byte code of a Python module that belongs to a package."""
    folder, cached, name = path.rpartition("__pycache__/")
    return bool(cached) and f"{folder}{name.partition('.')[0]}.py" in owned
