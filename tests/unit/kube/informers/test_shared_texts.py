"""Texts of cached objects, of which equal ones are in memory once."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from halcyon.kube.informers.shared_texts import MAX_TEXTS, SharedTexts

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda below: st.lists(below) | st.dictionaries(st.text(), below),
)


@given(st.dictionaries(st.text(), JSON))
def test_an_object_with_shared_texts_equals_the_received_one(received: dict[str, Any]) -> None:
    texts = SharedTexts()
    texts.share(json.loads(json.dumps(received)))
    assert texts.share(json.loads(json.dumps(received))) == received


def test_equal_texts_of_two_objects_are_in_memory_once() -> None:
    texts = SharedTexts()
    text = '{"status": {"conditions": [{"reason": "AllReplicasReady"}]}}'
    first, second = (texts.share(json.loads(text))["status"]["conditions"][0] for _ in range(2))
    assert first is not second
    assert first["reason"] is second["reason"]


def test_texts_that_only_one_object_has_are_dropped_in_the_end() -> None:
    texts = SharedTexts()
    for number in range(3 * MAX_TEXTS):
        texts.share({"uid": f"{number:08}"})
    assert len(texts._texts) <= MAX_TEXTS + 1
