"""Which configurations turn the sequence batcher on."""

from __future__ import annotations

import pytest

from halcyon.api.sequence_batching import in_config


@pytest.mark.parametrize(
    "text",
    [
        "sequence_batching {\n  max_sequence_idle_microseconds: 5000000\n}",
        'name: "m"\nsequence_batching: { direct {} }',
        "sequence_batching<oldest {}>",
        'backend: "python" sequence_batching{}',
        "# a comment's quote: '\nsequence_batching {}",
    ],
)
def test_a_sequence_batcher_is_found_however_it_is_written(text: str) -> None:
    assert in_config(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dynamic_batching {}",
        "# sequence_batching {}",
        "parameters { key: 'sequence_batching {' value: { string_value: \"sequence_batching: {}\" } }",
        'parameters { key: "a\\"sequence_batching {" }',
        "my_sequence_batching {}",
    ],
)
def test_a_text_that_only_resembles_a_sequence_batcher_is_none(text: str) -> None:
    assert not in_config(text)
