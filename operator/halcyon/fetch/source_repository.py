"""Sources that are a Triton model repository: the served model, and the other models that Triton loads with it.

A source is a repository if it has several model folders, one of which has the name of the served model. The others are
its companions: the steps of an ensemble, or models that a Python model calls (BLS). The repository may also be the only
folder of the source, as created by `tar` and `git clone`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from halcyon.fetch import mounted_source
from halcyon.fetch.errors import SourceError
from halcyon.fetch.mounted_source import ModelFolder
from halcyon.model_config import companion
from halcyon.model_config.config_pbtxt import FILE
from halcyon.model_config.errors import ModelError

MAX_MODELS = 32
"""Maximum number of models in a repository. Triton loads all of them into each pod, and agents read the metrics of all."""


@dataclass(frozen=True)
class SourceModels:
    """Models of a source."""

    served: ModelFolder
    companions: Mapping[str, ModelFolder]
    """Other models that Triton loads, by name."""


def read(mount: Path, inside: str | None, served: str) -> SourceModels:
    """Read the models in the folder `inside` of the source that is mounted at `mount`. `served` is the model's name.

    Raises:
        SourceError: a model of the source is invalid (see `mounted_source.read`), or the source has too many models.
        ModelConfigError: the config.pbtxt of a companion is invalid, or names another model.
    """
    inside = _unwrapped(mount, inside)
    names = _models(mount, inside)
    if len(names) < 2 or served not in names:
        return SourceModels(mounted_source.read(mount, inside), {})
    folder, root = mounted_source.locate(mount, inside), mount.resolve()
    # Without a version folder, such a folder is an error: Triton would not load it.
    names |= {name for name in mounted_source.visible_names(folder, inside) if (folder / name / FILE).is_file()}
    if len(names) > MAX_MODELS:
        raise SourceError(
            f"{mounted_source.folder_name(inside)} of the model's source has {len(names)} models; the limit is {MAX_MODELS}, "
            f"because each pod loads all of them. Set the path of the source to {_below(inside, served)} to serve this model "
            "alone, or to a folder with only the models that it needs"
        )
    for name in names:
        mounted_source.check_inside(folder / name, root)
    folders: dict[str, ModelFolder] = {}
    for name in sorted(names):
        with errors_of(name):
            folders[name] = mounted_source.read(mount, _below(inside, name))
            if name != served and (config := folders[name].config) is not None:
                companion.check(name, config)
    return SourceModels(folders.pop(served), folders)


@contextmanager
def errors_of(name: str) -> Iterator[None]:
    """Return a context manager that adds a model's name to the errors of its folder."""
    try:
        yield
    except ModelError as error:
        raise type(error)(companion.named(name, error)) from error


def _models(mount: Path, inside: str | None) -> set[str]:
    """Return the names of the model folders in a folder; empty if the folder is a model's itself."""
    folder = mounted_source.locate(mount, inside)
    names = mounted_source.visible_names(folder, inside)
    if FILE in names or any(mounted_source.is_version(name) and (folder / name).is_dir() for name in names):
        return set()
    return {name for name in names[: mounted_source.MAX_EXAMINED] if mounted_source.is_model(folder / name)}


def _unwrapped(mount: Path, inside: str | None) -> str | None:
    """Return the path of the only folder in the folder `inside` if it has several models; otherwise `inside`."""
    folder = mounted_source.locate(mount, inside)
    names = mounted_source.visible_names(folder, inside)
    folders = [name for name in names if (folder / name).is_dir()]
    if len(folders) != 1 or FILE in names or mounted_source.is_model(folder / folders[0]):
        return inside
    within = _below(inside, folders[0])
    return within if len(_models(mount, within)) > 1 else inside


def _below(inside: str | None, name: str) -> str:
    return f"{inside}/{name}" if inside else name
