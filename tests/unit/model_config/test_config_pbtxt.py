"""Reading a config.pbtxt: errors quote the line, and no bytes make it fail in another way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.model_config import config_pbtxt
from halcyon.model_config.errors import ModelConfigError, UnknownFieldError

GOLDEN = [
    (
        'name: "m"\nmax_batch_size: sixteen\n',
        (
            "config.pbtxt, line 2, column 17: `max_batch_size: sixteen`: Couldn't parse integer: sixteen; "
            "expected a whole number, for example max_batch_size: 16"
        ),
    ),
    (
        'name: "m"\ninput {\n  name: "X"\n\n',
        (
            'config.pbtxt, line 3, column 9: `name: "X"`: Expected "}"; '
            "expected a closing brace, for example dynamic_batching { }"
        ),
    ),
    (
        'name: "m"\nmax_batch_size:\n\n',
        (
            "config.pbtxt, line 2, column 16: `max_batch_size:`: Couldn't parse integer: ; "
            "expected a whole number, for example max_batch_size: 16"
        ),
    ),
    (
        "name: m\n",
        (
            "config.pbtxt, line 1, column 7: `name: m`: Expected string but found: 'm'; "
            'expected text in quotes, for example name: "digits"'
        ),
    ),
    (
        "name 'm'\n",
        (
            "config.pbtxt, line 1, column 6: `name 'm'`: Expected \":\"; "
            "expected field: value, for example max_batch_size: 16"
        ),
    ),
    (
        "max_batch_size: 99999999999\n",
        (
            "config.pbtxt, line 1, column 17: `max_batch_size: 99999999999`: Value out of range: 99999999999; "
            "expected a number that fits its field, for example max_batch_size: 16"
        ),
    ),
    (
        "max_batch_size: 1\nmax_batch_size: 2\n",
        (
            'config.pbtxt, line 2, column 17: `max_batch_size: 2`: Message type "inference.ModelConfig" should not have '
            'multiple "max_batch_size" fields; expected the field once'
        ),
    ),
    (
        'name: "m"\nmax_batch_size: ${triton_max_batch_size}\n',
        (
            "config.pbtxt, line 2, column 17: `max_batch_size: ${triton_max_batch_size}`: Couldn't parse integer: $; "
            "expected a whole number, for example max_batch_size: 16"
        ),
    ),
    (
        "dynamic_batching { preserve_ordering: yes }\n",
        (
            'config.pbtxt, line 1, column 39: `dynamic_batching { preserve_ordering: yes }`: Expected "true" or '
            '"false"; expected for example preserve_ordering: true'
        ),
    ),
    (
        "dynamic_batching {}\nsequence_batching {}",
        (
            'config.pbtxt, line 2, column 1: `sequence_batching {}`: Field "sequence_batching" is specified along with '
            'field "dynamic_batching", another member of oneof "scheduling_choice" for message type "inference.ModelConfig"; '
            "expected one of the two"
        ),
    ),
    (
        'instance_group { kind: "KIND_CPU" }',
        (
            'config.pbtxt, line 1, column 24: `instance_group { kind: "KIND_CPU" }`: Enum type '
            '"inference.ModelInstanceGroup.Kind" has no value named "KIND_CPU"; '
            "expected a value without quotes, for example kind: KIND_CPU"
        ),
    ),
]


@pytest.mark.parametrize(("text", "message"), GOLDEN)
def test_a_broken_file_is_reported_by_line_column_text_and_expectation(text: str, message: str) -> None:
    with pytest.raises(ModelConfigError) as caught:
        config_pbtxt.parse(text.encode())
    assert not isinstance(caught.value, UnknownFieldError)
    assert str(caught.value) == message


UNKNOWN = [
    ("max_bath_size: 1", ('line 1, column 1: `max_bath_size: 1`: Message type "inference.ModelConfig" has no field named '
     '"max_bath_size"; did you mean max_batch_size?')),
    ("input {\n data_type: TYPE_FP23 }", ('line 2, column 13: `data_type: TYPE_FP23 }`: Enum type "inference.DataType" '
     "has no value named TYPE_FP23; did you mean TYPE_FP32?")),
    ("zzz { }", 'has no field named "zzz"'),
    ("input { zzz: 1 }", 'Message type "inference.ModelInput" has no field named "zzz"'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "part"), UNKNOWN)
def test_fields_of_a_newer_triton_are_distinguished(text: str, part: str) -> None:
    with pytest.raises(UnknownFieldError) as caught:
        config_pbtxt.parse(text.encode())
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b'name: "m"\nback\0end: 1', "line 2: a NUL byte"),
        (b'name: "m"\n\nbackend: "\xff"', "line 3: byte 0xff is not UTF-8"),
        (b'name: "\\xff"', 'line 1, column 13: `name: "\\xff"`: Couldn\'t parse string'),
        (b"x" * (config_pbtxt.MAX_BYTES + 1), "1048577 bytes or more; the limit is 1048576"),
        (b"\xef\xbb\xbfname: 1", "line 1, column 1"),
        (b"{" * 100_000, "line 1, column 1"),
    ],
)
def test_hostile_content_is_refused(content: bytes, part: str) -> None:
    with pytest.raises(ModelConfigError) as caught:
        config_pbtxt.parse(content)
    assert part in str(caught.value)


def test_nested_fields_without_an_end_are_refused() -> None:
    with pytest.raises(ModelConfigError, match="too many fields inside each other"):
        config_pbtxt.parse(b"zzz { " * 100_000, with_unknown=True)


def test_a_long_line_is_quoted_around_the_place() -> None:
    with pytest.raises(ModelConfigError) as caught:
        config_pbtxt.parse(
            ("# " + "x" * 5000 + "\nparameters { } " + 'metric_tags { key: "' + "k" * 500 + '" value: 7 }').encode()
        )
    assert "value: 7 }`" in str(caught.value)
    assert len(str(caught.value)) < 500


PIECES = st.sampled_from(
    [
        "name",
        "input",
        "{",
        "}",
        "[",
        "]",
        "<",
        ">",
        ":",
        ",",
        '"m"',
        "'",
        '"',
        "#",
        "-",
        "1",
        "1e9",
        "0x",
        "inf",
        "dims",
        "data_type",
        "TYPE_FP32",
        "parameters",
        "key",
        "value",
        "string_value",
        "max_batch_size",
        "[a.b/c]",
        "\\",
        "é",
        "\n",
        " ",
    ]
)


@given(st.lists(PIECES, max_size=30).map("".join).map(str.encode) | st.binary(max_size=60))
def test_bytes_are_read_or_refused(content: bytes) -> None:
    for read in (config_pbtxt.parse, config_pbtxt.declared_name):
        try:
            read(content)
        except ModelConfigError as error:
            assert str(error).startswith("config.pbtxt, line ")  # noqa: PT017  # either outcome is right


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('name: "m"', "m"),
        ('input { name: "x" }\nbrand_new [ { name: "y" } ] name: "m" "n"', "mn"),
        ('input < name: "x" >', ""),
        ("", ""),
        ("# name: 'c'", ""),
    ],
)
def test_the_name_is_found_in_a_file_that_is_not_understood(text: str, name: str) -> None:
    assert config_pbtxt.declared_name(text.encode()) == name


def test_a_name_is_not_guessed_from_what_is_no_text_format() -> None:
    with pytest.raises(ModelConfigError, match="line 2, column 7: `name: 'm`"):
        config_pbtxt.declared_name(b"brand_new: 1\nname: 'm\n")


@pytest.mark.parametrize("after", ["# " * 20_000, "#" * 20_000, " #\n" * 20_000, "- " * 20_000, '"\\' * 20_000])
def test_comments_after_a_sign_are_read_in_linear_time(after: str) -> None:
    # With nested repetitions that match one comment in many ways, 16 marks took 10 s, and the operator's loop stood still.
    with pytest.raises(ModelConfigError):
        config_pbtxt.parse(f"max_batch_size: -{after}\nx".encode())
    assert config_pbtxt.parse(b"max_batch_size: - # a # b\n # c\n 1").max_batch_size == -1
