"""The user's functions: their values reach the results, whatever their types."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halcyon_batch.errors import BatchError
from halcyon_batch.functions import Functions, check
from halcyon_batch.output_parts import plain
from halcyon_batch.row_tensors import BatchModel


def _finished(path: Path, text: str) -> Any:
    path.write_text(text)
    functions = Functions("", f"{path}:finish", BatchModel((), is_batched=True), 1)
    try:
        (result,) = asyncio.run(functions.finish([{"y": np.ones((1, 3), np.float32)}]))
    finally:
        functions.close()
    return plain(result) if isinstance(result, Mapping) else result


@pytest.mark.parametrize(
    ("returned", "stored"),
    [
        ("{'best': {'label': 'cat', 'score': outputs['y'][0, 0]}}", {"best": {"label": "cat", "score": 1.0}}),
        ("{'label': Label.CAT}", {"label": "Label.CAT"}),
        ("{'label': None, 'text': b'a'}", {"label": None, "text": "a"}),
        ("[{'label': 'cat'}, {'label': 'dog'}]", {"value": [{"label": "cat"}, {"label": "dog"}]}),
        ("{'best': [['cat', 0.9], ('dog', True)]}", {"best": [["cat", 0.9], ["dog", True]]}),
        ("{'polygons': [[1, 2], [3]], 'hash': [2**63 + 1, -1]}", {"polygons": [[1, 2], [3]], "hash": [2**63 + 1, -1]}),
        (
            "{'text': 'a\\0', 'level': Level.HIGH, 'score': outputs['y'][0, 0]}",
            {"text": "a\0", "level": "high", "score": 1.0},
        ),
    ],
)
def test_values_of_finish_are_stored_with_nested_ones_and_own_classes(
    tmp_path: Path, returned: str, stored: Mapping[str, Any]
) -> None:
    own = "import enum\nclass Label(enum.Enum):\n    CAT = 1\nclass Level(str, enum.Enum):\n    HIGH = 'high'\n"
    assert _finished(tmp_path / "hook.py", f"{own}def finish(outputs):\n    return {returned}\n") == stored


def test_an_output_without_a_batch_dimension_is_stored_whole() -> None:
    functions = Functions("", "", BatchModel((), is_batched=True), 1)
    outputs = {"boxes": np.ones((7, 4)), "none": np.ones((0, 4)), "count": np.array(7), "scores": np.ones((1, 3))}
    try:
        shapes = {name: array.shape for name, array in functions.stored(outputs).items()}
    finally:
        functions.close()
    assert shapes == {"boxes": (7, 4), "none": (0, 4), "count": (), "scores": (3,)}


def test_a_function_that_exits_leaves_its_row_without_a_result(tmp_path: Path) -> None:
    assert _finished(tmp_path / "hook.py", "def finish(outputs):\n    raise SystemExit(0)\n") == (
        "hook.py, line 2: SystemExit: 0"
    )


def test_a_file_of_functions_that_exits_ends_the_batch_with_its_cause(tmp_path: Path) -> None:
    path = tmp_path / "hook.py"
    path.write_text("def finish(outputs):\n    return outputs\nraise SystemExit(0)\n")
    with pytest.raises(BatchError, match=r"spec\.hooks: .*hook\.py, line 3: SystemExit: 0"):
        check("", f"{path}:finish")
