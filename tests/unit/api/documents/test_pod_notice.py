"""Notices: what is read is what was written, and nothing else is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.pod_notice import Notice, NoticeError

GOOD = {"pod": "digits-server-a-x", "slot": "a", "address": "10.0.0.7", "change": "leaving"}
TEXTS = st.text(min_size=1, max_size=40)


@given(TEXTS, TEXTS, st.ip_addresses(), st.sampled_from(["ready", "unready", "leaving"]))
def test_a_written_notice_is_read_back(pod: str, slot: str, address: Any, news: Any) -> None:
    notice = Notice(pod, slot, str(address), news)
    assert Notice.from_json(notice.to_json()) == notice


def test_a_leaving_pod_needs_no_address_and_a_ready_pod_does() -> None:
    assert Notice.from_json(json.dumps(GOOD | {"address": ""})).address == ""
    with pytest.raises(NoticeError, match=r"address is ''.*10\.0\.0\.7"):
        Notice.from_json(json.dumps(GOOD | {"address": "", "change": "ready"}))


def test_a_field_that_a_later_version_adds_is_left_out() -> None:
    assert Notice.from_json(json.dumps(GOOD | {"why": "evicted"})) == Notice(**GOOD)  # type: ignore[arg-type]  # its news is one


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"change": "sad"}, "change is 'sad'; it must be one of ready, unready, leaving"),
        ({"change": None}, "change is None; it must be a string"),
        ({"pod": ""}, "pod and slot must not be empty"),
        ({"slot": ""}, "pod and slot must not be empty"),
        ({"address": "localhost"}, "address is 'localhost'"),
        ({"address": 7}, "address is 7"),
    ],
)
def test_a_wrong_value_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(NoticeError, match=message):
        Notice.from_json(json.dumps(GOOD | changed))


@pytest.mark.parametrize(
    "text", ["", "[]", "7", "{}", "[" * 3000, json.dumps(GOOD)[:-1], json.dumps(GOOD | {"pod": "p" * 3000})]
)
def test_a_text_that_is_no_notice_is_an_error(text: str) -> None:
    with pytest.raises(NoticeError):
        Notice.from_json(text)
