"""Which Python models Triton is told not to complete: those where it would be asked for nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from halcyon.api.documents.model_overlay import Overlay
from halcyon.api.documents.repository_marker import COMPLETE
from halcyon.fetch import auto_complete, mounted_source
from halcyon.fetch.main import main

CONFIG = """\
backend: "python"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
PLAIN = """\
import json
from other import Helper


class TritonPythonModel:
    def execute(self, requests):
        return []
"""
NO_INPUT = CONFIG.replace('input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]\n', "")
NO_OUTPUT = CONFIG.replace('output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n', "")


def is_complete(tmp_path: Path, config: str, *programs: str | bytes) -> bool:
    for version, program in enumerate(programs, start=1):
        file = tmp_path / "source" / str(version) / "model.py"
        file.parent.mkdir(parents=True)
        file.write_bytes(program.encode() if isinstance(program, str) else program)
    return auto_complete.is_complete(config.encode(), mounted_source.read(tmp_path / "source"))


@pytest.mark.parametrize(
    "program",
    [
        PLAIN,
        PLAIN.replace("TritonPythonModel:", "TritonPythonModel(object):"),
        PLAIN + "\n\nclass Other(dict):\n    pass\n",
    ],
)
def test_a_plain_class_beside_a_whole_configuration_has_nothing_to_add(tmp_path: Path, program: str) -> None:
    assert is_complete(tmp_path, CONFIG, program)
    assert is_complete(tmp_path / "named", CONFIG + 'default_model_filename: "model.py"\n', program)


@pytest.mark.parametrize(
    "config",
    [
        NO_INPUT,
        NO_OUTPUT,
        CONFIG.replace("python", "onnxruntime"),
        CONFIG.replace('backend: "python"\n', ""),
        CONFIG + 'default_model_filename: "other.py"\n',
        CONFIG + "what_is_this: 1\n",
        "input [",
    ],
)
def test_an_incomplete_or_unknown_configuration_is_completed(tmp_path: Path, config: str) -> None:
    assert not is_complete(tmp_path, config, PLAIN)


@pytest.mark.parametrize(
    "program",
    [
        PLAIN + "\n    @staticmethod\n    def auto_complete_config(config):\n        return config\n",
        PLAIN + '\n\nsetattr(Helper, "auto_complete_config", None)\n',
        PLAIN.replace("TritonPythonModel:", "TritonPythonModel(Helper):"),
        PLAIN.replace("TritonPythonModel:", "TritonPythonModel(metaclass=Helper):"),
        PLAIN.replace("class TritonPythonModel", "@Helper\nclass TritonPythonModel"),
        PLAIN.replace("TritonPythonModel", "Model"),
        PLAIN + "\n\nTritonPythonModel = Helper\n",
        PLAIN + "\n\nfrom other import *\n",
        PLAIN + "\n\nfrom other import Helper as TritonPythonModel\n",
        PLAIN + "\n\nif json:\n    class TritonPythonModel:\n        pass\n",
        PLAIN + "\n\ndef TritonPythonModel():\n    pass\n",
        PLAIN + "\n\nclass TritonPythonModel:\n    pass\n",
        PLAIN + "\n\nHelper.patch(TritonPythonModel)\n",
        "from other import TritonPythonModel\n",
        "class TritonPythonModel:",
        "",
        b"\xff\xfe",
        "x = " + "(" * 500 + ")" * 500,
        f"{PLAIN}# {'x' * 256 * 1024}\n",
    ],
)
def test_a_program_that_may_import_the_function_is_run(tmp_path: Path, program: str | bytes) -> None:
    assert not is_complete(tmp_path, CONFIG, program)


def test_each_version_counts(tmp_path: Path) -> None:
    assert is_complete(tmp_path / "a", CONFIG, PLAIN, PLAIN)
    assert not is_complete(tmp_path / "b", CONFIG, PLAIN, PLAIN.replace("TritonPythonModel", "Model"))


def test_a_source_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "source" / "1"
    folder.mkdir(parents=True)
    assert not auto_complete.is_complete(CONFIG.encode(), mounted_source.read(tmp_path / "source"))
    os.mkfifo(folder / "model.py")
    assert not auto_complete.is_complete(CONFIG.encode(), mounted_source.read(tmp_path / "source"))


def test_the_server_is_notified_and_a_later_attempt_revokes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "source" / "1" / "model.py"
    model.parent.mkdir(parents=True)
    (tmp_path / "source" / "config.pbtxt").write_text(CONFIG)
    (tmp_path / "overlay.json").write_text(Overlay("m").to_json())
    arguments = [f"--{name}={tmp_path / name}" for name in ("source", "overlay", "repository")]
    arguments[1] += ".json"
    model.write_text(PLAIN)
    assert main(arguments) == 0
    assert (tmp_path / "repository" / COMPLETE).read_bytes() == b""
    assert capsys.readouterr().out.endswith("; versions: 1; loaded without auto-complete, because nothing is missing\n")
    model.write_text(PLAIN.replace("TritonPythonModel", "Model"))
    assert main(arguments) == 0
    assert sorted(path.name for path in (tmp_path / "repository").iterdir()) == ["m"]
    assert capsys.readouterr().out.endswith("; versions: 1\n")
