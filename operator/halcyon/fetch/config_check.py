"""Checks of a config.pbtxt for errors that Triton finds only when it loads the model, after the pod has started.

- Literals that protobuf's Python parser accepts but Triton's parser rejects. Triton receives a file that Halcyon doesn't
  change as it is. Halcyon writes changed files in a form that Triton accepts.
- Names of a backend or file that Triton can't resolve. Triton's own errors often lack the name. Sources:
  triton-inference-server/core, src/model.cc, src/backend_model.cc, src/backend_model_instance.cc and
  src/sequence_batch_scheduler; and the backends. A file that Triton may find outside the source counts as present.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from halcyon.fetch import mounted_source
from halcyon.fetch.mounted_source import ModelFolder
from halcyon.model_config import config_pbtxt, ensemble
from halcyon.model_config.config_pbtxt import FILE
from halcyon.model_config.errors import ModelConfigError
from halcyon.model_config.merge import PLATFORMS, backend_of
from halcyon.model_config.model_config_proto import ModelConfig

_TOKEN = re.compile(
    r"""#[^\n]*|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|[A-Za-z_][\w+-]*|(?P<number>[0-9+.-][\w+.-]*|[^\x00-\x7f])"""
)
_BAD_NUMBER = re.compile(r"\+|.*_|-?0[bBoO]|[^\x00-\x7f]")
_IN_IMAGE = re.compile(r"(\.\./){2,}(?!\.\./)[^/]+/")
"""Pattern of a path relative to a model's folder that leads out of the repository and into a folder."""
_IN_REPOSITORY = re.compile(r"(\.\./){2,}models/")
"""Pattern of the beginning of a path that leads out of the repository, which is /models in the pod, and into it again."""
_ESCAPES = "abfnrtvxXuU01234567\\'\"?"
"""Characters that may follow a backslash in a quoted text."""


def check_literals(content: bytes) -> None:
    """Check the literals of a config.pbtxt that `config_pbtxt` has parsed, including those of unknown fields.

    Raises:
        ModelConfigError: Triton would reject a literal; the message has line, column and text.
    """
    text = content.decode(errors="replace")
    for token in _TOKEN.finditer(text):
        start = token.start()
        if (number := token["number"]) and _BAD_NUMBER.match(number):
            raise _error(text, start, f"{number} is not a number for Triton; write only digits, for example 1000 or -1")
        for escape in re.finditer(r"\\(.)", token["text"] or ""):
            if escape[1] not in _ESCAPES:
                good = f"\\\\{escape[1]} for a backslash and the character"
                raise _error(
                    text, start + escape.start(), f"{escape[0]} is not an escape for Triton; for example {good}"
                )


def _error(text: str, at: int, problem: str) -> ModelConfigError:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return ModelConfigError(f"{FILE}, line {line}, column {column}: {problem}")


_MODEL_FILES: Mapping[str, str] = {
    "onnxruntime": "model.onnx",
    "openvino": "model.xml",
    "python": "model.py",
    "tensorrt": "model.plan",
}
"""File that a backend loads from the version folder if the configuration names none."""
_FOREST_FILES: Mapping[str, str] = {
    "lightgbm": "model.txt",
    "treelite_checkpoint": "checkpoint.tl",
    "xgboost": "xgboost.model",
    "xgboost_json": "xgboost.json",
    "xgboost_ubj": "xgboost.ubj",
}
"""File that the backend fil loads, by the parameter `model_type`."""
_ENVIRONMENT, _MODEL_DIRECTORY = "EXECUTION_ENV_PATH", "$$TRITON_MODEL_DIRECTORY"


def check_references(content: bytes | None, folder: ModelFolder, source: Path) -> None:
    """Check the config.pbtxt that Triton receives, `content`, against the model's folder in the source.

    `source` is the folder at which the source is mounted.

    Raises:
        ModelConfigError: Triton can't resolve a name; the message has the name and a good one.
    """
    config = config_pbtxt.parse_if_valid(content)
    if config.model_repository_agents.agents:
        return  # an agent may replace all files of the model, for example to decrypt them
    for problems in (
        _backend(config),
        _files(config, folder),
        _environment(config, folder, source),
        _model_file(config, folder),
    ):
        if problem := next(problems, ""):
            raise ModelConfigError(problem)


def _backend(config: ModelConfig) -> Iterator[str]:
    if config.backend.startswith("${"):
        yield (
            f'{FILE} has backend: "{config.backend}", a variable of a template; replace all variables with their values, '
            'for example backend: "python"'
        )
    if config.backend in PLATFORMS:
        yield (
            f'{FILE} has backend: "{config.backend}", a value of the field platform; for example backend: '
            f'"{PLATFORMS[config.backend]}"'
        )


def _files(config: ModelConfig, folder: ModelFolder) -> Iterator[str]:
    """Yield problems of files outside the version folders."""
    named = [
        (f"label_filename: {output.label_filename!r} in the output {output.name!r}", output.label_filename)
        for output in config.output
        if output.label_filename
    ]
    named += [
        (f"input_data_file: {tensor.input_data_file!r} in model_warmup", f"warmup/{tensor.input_data_file}")
        for request in config.model_warmup
        if request.batch_size  # Triton skips requests with the default, 0
        for _, tensor in sorted(request.inputs.items())
        if tensor.input_data_file
    ]
    named += [
        (f"data_file: {initial.data_file!r} in the state {state.input_name!r}", f"initial_state/{initial.data_file}")
        for state in config.sequence_batching.state
        for initial in state.initial_state
        if initial.data_file
    ]
    for field, named_path in named:
        path = named_path.lstrip("/")  # Triton joins it to the folder even if it begins with a slash.
        if not _is_present(folder, path):
            yield f"{FILE} has {field}, and the model's folder lacks the file {path}; {_contents(folder, path)}"


def environment_beside(content: bytes | None) -> str:
    """Return the name of the packed Python environment beside the model's folder; empty if config.pbtxt names none."""
    config = config_pbtxt.parse_if_valid(content)
    value, name = _environment_path(config)
    parent, _, file = name.partition("/")
    return file if value.startswith(_MODEL_DIRECTORY) and parent == ".." and "/" not in file else ""


def _environment_path(config: ModelConfig) -> tuple[str, str]:
    """Return the parameter with the packed environment, and its path relative to the model's folder.

    Both are empty for a model that is no Python model, or if the path is absolute.
    """
    value = config.parameters[_ENVIRONMENT].string_value if _ENVIRONMENT in config.parameters else ""
    if not value or value.startswith("/") or backend_of(config) != "python":
        return "", ""
    name = posixpath.normpath(value.removeprefix(_MODEL_DIRECTORY).lstrip("/"))
    return value, _IN_REPOSITORY.sub("../", name)


def _environment(config: ModelConfig, folder: ModelFolder, source: Path) -> Iterator[str]:
    """Yield problems of the packed environment of a Python model.

    A folder that is not in the repository may be in Triton's image, for example `../../opt`.
    """
    value, name = _environment_path(config)
    if not name or _IN_IMAGE.match(name):
        return
    if value.startswith(_MODEL_DIRECTORY) and name.split("/")[0] == "..":
        inside = folder.path != source and name.count("/") == 1
        if not inside or not (folder.path / name).is_file():
            yield (
                f"the parameter {_ENVIRONMENT} is {value}, and the source has no such file in the folder of the model's "
                f"folder; put it there, or in the model's folder, for example {_MODEL_DIRECTORY}/{posixpath.basename(name)}"
            )
        else:
            mounted_source.check_inside(folder.path / name, source.resolve())
        return
    if value.startswith(_MODEL_DIRECTORY) and not _is_present(folder, name):
        yield (
            f"the parameter {_ENVIRONMENT} is {value}, and the model's folder lacks the file {name}; "
            f"{_contents(folder, name)}"
        )
    if not value.startswith(_MODEL_DIRECTORY) and _exists(folder.path / name):
        yield (
            f"the parameter {_ENVIRONMENT} is {value}, which Triton does not look up in the model's folder; for example "
            f"{_MODEL_DIRECTORY}/{name}"
        )


def _model_file(config: ModelConfig, folder: ModelFolder) -> Iterator[str]:
    """Yield a problem if no version folder has the file that the backend loads."""
    backend = backend_of(config)
    default = _MODEL_FILES.get(backend, "")
    if backend == "fil":
        kind = config.parameters["model_type"].string_value if "model_type" in config.parameters else ""
        default = _FOREST_FILES.get(kind or "xgboost", "")
    name = config.default_model_filename or default
    if not default or ensemble.is_ensemble(config) or config.cc_model_filenames:
        return
    if any(_is_present(folder, f"{version}/{name}") for version in folder.versions):
        return
    last = folder.versions[-1]
    names = mounted_source.visible_names(folder.path / str(last), None)
    if not names:
        yield (
            f"the backend {backend} loads {name}, and the version folder {last} is empty; put the file there, for example "
            f"{last}/{name}"
        )
        return
    example = next((other for other in names if Path(other).suffix == Path(name).suffix), names[0])
    yield (
        f"the backend {backend} loads {name}, and the version folder {last} has "
        f"{mounted_source.join_names(names)}; rename the file, or name it in {FILE}, for example default_model_filename: "
        f'"{example}"'
    )


def _is_present(folder: ModelFolder, path: str) -> bool:
    """Return whether Triton may find a file of the model, in the source or, through a link, in its own image."""
    if posixpath.normpath(path).startswith("../"):
        return True  # Triton may find another file than the one of this path in the source
    return _exists(folder.path / path) or mounted_source.leads_out(folder, folder.path / path)


def _exists(path: Path) -> bool:
    # Path.exists would raise an error for a name of more than 255 bytes.
    return os.path.exists(path)  # noqa: PTH110


def _contents(folder: ModelFolder, path: str) -> str:
    """Return a phrase with the names in the folder in which a file is absent."""
    inside = path.rpartition("/")[0] or None
    place = folder.path / (inside or "")
    if not os.path.isdir(place):  # noqa: PTH112  # see `_exists`
        return f"put it there, for example {path}"
    names = mounted_source.visible_names(place, inside)
    return f"{mounted_source.folder_name(inside)} has {mounted_source.join_names(names) or 'no files'}"
