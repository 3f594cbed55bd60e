"""Literals of config.pbtxt, as protobuf's C++ parser reads them: each result is that of `protoc --encode` 6.33."""

from __future__ import annotations

from pathlib import Path

import pytest

from halcyon.fetch import config_check
from halcyon.model_config import config_pbtxt
from halcyon.model_config.errors import ModelConfigError
from tests.unit.fetch.test_main import Pod

_DELAY = "dynamic_batching {{ max_queue_delay_microseconds: {} }}"
_SLOTS = "sequence_batching {{ direct {{ minimum_slot_utilization: {} }} }}"


@pytest.mark.parametrize(
    "content",
    [
        *(f"max_batch_size: {number}" for number in ("0x10", "007", "-0x8", "-1")),
        *(f"input {{ dims: [ {number} ] }}" for number in ("- 1", "-\n1", "- # one\n1", "1, - 1, -\t0x8")),
        *(_SLOTS.format(number) for number in ("1e+5", "1.5e-3f", "-.5", "5.", "- inf", "- 1.5", "-NaN")),
        r"""name: "\n\t\\\"\'\x41\101\u0041\U0001F600" """,
        "name: 'a_0 + 0b1 \u0663 - 1' # + 1_000 0b1 \u0663 \"\\q\"",
        'name: "it\'s" \'a "b"\'; max_batch_size: 3,',
        'input [ < name: "x_1" dims: [ 1 ] >, { data_type: TYPE_FP32 } ]',
        r'parameters { key: "a-1_0+b" value: { string_value: "\\d+" } }',
    ],
)
def test_literals_that_triton_accepts_pass(content: str) -> None:
    config_check.check_literals(content.encode())


@pytest.mark.parametrize(
    ("content", "column", "problem"),
    [
        ("max_batch_size: 1_000", 17, "1_000 is not a number for Triton; write only digits, for example 1000 or -1"),
        ("input { dims: [ -1, +1 ] }", 21, "+1 is not a number for Triton"),
        ("max_batch_size: 0b1", 17, "0b1 is not a number for Triton"),
        ("input { dims: -0o7 }", 15, "-0o7 is not a number for Triton"),
        ("max_batch_size: \u0663", 17, "\u0663 is not a number for Triton"),
        (_DELAY.format("1_000"), 50, "1_000 is not a number for Triton"),
        (_SLOTS.format("1_0.5"), 56, "1_0.5 is not a number for Triton"),
        (
            r'parameters { key: "\\a\d" value { } }',
            23,
            r"\d is not an escape for Triton; for example \\d for a backslash and the character",
        ),
        ("newer: 1 max_batch_size: 1_000", 26, "1_000 is not a number for Triton"),
    ],
)
def test_literals_that_triton_rejects_are_quoted_with_their_place(content: str, column: int, problem: str) -> None:
    with pytest.raises(ModelConfigError, match=r"^config\.pbtxt") as raised:
        config_check.check_literals(f"\n# 1_000\n{content}".encode())

    assert str(raised.value).startswith(f"config.pbtxt, line 3, column {column}: {problem}")


def test_a_sign_apart_from_its_number_keeps_its_value() -> None:
    config = config_pbtxt.parse(b"max_batch_size: - 1 input { dims: [ -\n2, - # c\n 3 ] }")

    assert (config.max_batch_size, *config.input[0].dims) == (-1, -2, -3)


def test_a_number_that_triton_rejects_fails_the_fetch(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    pod.put("1/model.py")
    pod.put("config.pbtxt", 'name: "m" backend: "python"\nmax_batch_size: 1_000\n')

    reason, message = pod.refusal()
    assert reason == "ModelConfigInvalid"
    assert message.startswith("config.pbtxt, line 2, column 17: 1_000 is not a number")
