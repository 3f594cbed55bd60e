"""Packages in an image, according to the metadata of dpkg, Python's installers and npm. Pure.

Formats: deb-control(5), Debian's machine-readable copyright files (DEP 5), Python's "Recording installed projects" and
core metadata, npm's package.json.
"""

from __future__ import annotations

import csv
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from typing import Any

from packageurl import PackageURL
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name

from images.archives import File

_STATUS, _RELEASE = "var/lib/dpkg/status", "etc/os-release"
_DPKG_FILE_LIST = re.compile(r"var/lib/dpkg/info/.+\.list")
_PYTHON_METADATA = re.compile(r"(.+)/[^/]+\.dist-info/(METADATA|RECORD)")
_NPM_METADATA = re.compile(r"(.+)/package\.json")
_COPYRIGHT = re.compile(r"usr/share/doc/[^/]+/copyright")
_MERGED = re.compile(r"(bin|sbin|lib|lib64)/")
"""Directories of Debian's merged /usr. Packages may list files under their paths from before the merge."""
_SHORT_LICENCE = re.compile(r"^License:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
_KNOWN_FORMAT = re.compile(r"^Format(-Specification)?:", re.MULTILINE)


@dataclass(frozen=True)
class Package:
    """Package installed in an image."""

    purl: PackageURL
    licences: tuple[str, ...]
    """Licences that the package declares, as SPDX expressions or names."""
    needs: tuple[str, ...]
    """Package URLs (purl) of the packages in the image on which this package depends."""
    files: frozenset[str]
    """Paths of the package's files, without a leading slash."""
    summary: str = ""


def is_metadata(path: str) -> bool:
    """Return True if the content of this file is needed to find packages."""
    if path in {_STATUS, _RELEASE, "usr/lib/os-release"}:
        return True
    return any(form.fullmatch(path) for form in (_DPKG_FILE_LIST, _PYTHON_METADATA, _NPM_METADATA, _COPYRIGHT))


def installed_packages(files: Mapping[str, File]) -> list[Package]:
    """Return all packages of the image, Debian's first. Files of an npm package in a Python package belong to both."""
    return [*_debian(files), *_python(files), *_npm(files)]


def _text(files: Mapping[str, File], path: str) -> str:
    file = files.get(path)
    return "" if file is None or file.content is None else file.content.decode(errors="replace")


def _debian(files: Mapping[str, File]) -> Iterator[Package]:
    release = dict(
        line.split("=", 1)
        for line in (_text(files, _RELEASE) or _text(files, "usr/lib/os-release")).splitlines()
        if "=" in line
    )
    distro = "-".join(release.get(key, "").strip('"') for key in ("ID", "VERSION_ID"))
    stanzas = [HeaderParser().parsestr(text) for text in _text(files, _STATUS).split("\n\n") if text.strip()]
    installed = [s for s in stanzas if str(s["Status"]).endswith(" installed")]
    purls = {str(s["Package"]): _debian_purl(s, distro) for s in installed}
    provided = {
        name: purls[str(s["Package"])] for s in installed for names in _relations(s, "Provides") for name in names
    }
    for stanza in installed:
        name, arch = str(stanza["Package"]), str(stanza["Architecture"])
        needs = {
            str(purl)
            for names in (*_relations(stanza, "Pre-Depends"), *_relations(stanza, "Depends"))
            if (purl := next((have[n] for have in (purls, provided) for n in names if n in have), None)) is not None
        }
        file_list = _text(files, f"var/lib/dpkg/info/{name}.list") or _text(
            files, f"var/lib/dpkg/info/{name}:{arch}.list"
        )
        paths = (line.lstrip("/") for line in file_list.splitlines())
        yield Package(
            purls[name],
            _debian_licences(_text(files, f"usr/share/doc/{name}/copyright")),
            tuple(sorted(needs - {str(purls[name])})),
            frozenset(f"usr/{path}" if _MERGED.match(path) else path for path in paths),
            str(stanza["Description"] or "").partition("\n")[0],
        )


def _debian_purl(stanza: Message, distro: str) -> PackageURL:
    qualifiers = {"arch": str(stanza["Architecture"]), "distro": distro}
    source = str(stanza["Source"] or "").partition(" ")[0]
    if source and source != stanza["Package"]:
        # Debian's security advisories use the name of the source package.
        qualifiers["upstream"] = source
    return PackageURL("deb", "debian", str(stanza["Package"]), str(stanza["Version"]), qualifiers)


def _relations(stanza: Message, field: str) -> list[list[str]]:
    """Return the dependencies in a field. Each is a list of alternative names, one of which is enough."""
    relations = str(stanza[field] or "").replace("\n", " ").split(",")
    return [
        [re.split(r"[\s(:\[]", alternative.strip(), maxsplit=1)[0] for alternative in relation.split("|")]
        for relation in relations
        if relation.strip()
    ]


def _debian_licences(text: str) -> tuple[str, ...]:
    if not _KNOWN_FORMAT.search(text):
        return ()
    return tuple(dict.fromkeys(_SHORT_LICENCE.findall(text)))


def _python(files: Mapping[str, File]) -> Iterator[Package]:
    metadata = {}
    for path in files:
        match = _PYTHON_METADATA.fullmatch(path)
        if match and match[2] == "METADATA":
            metadata[posixpath.dirname(path)] = HeaderParser().parsestr(_text(files, path))
    purls = {
        canonicalize_name(str(meta["Name"])): PackageURL(
            "pypi", None, canonicalize_name(str(meta["Name"])), str(meta["Version"])
        )
        for meta in metadata.values()
    }
    for folder, meta in metadata.items():
        required = {
            str(purls[name])
            for text in meta.get_all("Requires-Dist") or ()
            if (name := _requirement_name(str(text))) in purls
        }
        root = posixpath.dirname(folder)
        rows = csv.reader(_text(files, f"{folder}/RECORD").splitlines())
        yield Package(
            purls[canonicalize_name(str(meta["Name"]))],
            _python_licences(meta),
            tuple(sorted(required)),
            frozenset(posixpath.normpath(posixpath.join(root, row[0])) for row in rows if row)
            | {f"{folder}/{name}" for name in ("METADATA", "RECORD", "INSTALLER")},
            str(meta["Summary"] or ""),
        )


def _requirement_name(text: str) -> NormalizedName | None:
    """Return the name in a Python requirement; None if the requirement applies only with an extra."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    return canonicalize_name(requirement.name) if applies else None


def _python_licences(meta: Message) -> tuple[str, ...]:
    if expression := meta["License-Expression"]:
        return (str(expression),)
    by_class = tuple(
        str(value).rpartition(" :: ")[2]
        for value in meta.get_all("Classifier") or ()
        if str(value).startswith("License ::") and not str(value).endswith("OSI Approved")
    )
    declared = str(meta["License"] or "").strip()
    # Some packages put the whole licence text into this field.
    return by_class or ((declared,) if declared and "\n" not in declared and len(declared) < 80 else ())


def _npm(files: Mapping[str, File]) -> Iterator[Package]:
    for path in files:
        match = _NPM_METADATA.fullmatch(path)
        document = _json(_text(files, path)) if match else {}
        if match and document.get("name") and document.get("version"):
            folder, name = match[1], str(document["name"])
            scope, _, short_name = name.rpartition("/")
            yield Package(
                PackageURL("npm", scope or None, short_name, str(document["version"])),
                (document["license"],) if isinstance(document.get("license"), str) else (),
                (),
                frozenset(file for file in files if file.startswith(f"{folder}/")),
                str(document.get("description", "")),
            )


def _json(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
