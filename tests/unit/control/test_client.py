"""What the client makes of an object before it is sent. Its requests are tested against a real API server."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from halcyon.control.client import _as_yaml
from halcyon.control.errors import Busy, Conflicted, Gone, NotFound, Refused, of_status


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=4))
def test_an_apply_body_is_the_same_object_as_json_and_as_yaml(obj: dict[str, str]) -> None:
    body = _as_yaml({"spec": obj}).decode()
    assert json.loads(body) == {"spec": obj}
    assert yaml.safe_load(body) == {"spec": obj}


def test_an_emoji_stands_as_it_is_and_a_delete_character_is_escaped() -> None:
    assert _as_yaml({"a": "\U0001f600\x7fé"}) == '{"a": "\U0001f600\\u007f\\u00e9"}'.encode()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, NotFound),
        (409, Conflicted),
        (410, Gone),
        (403, Refused),
        (422, Refused),
        (429, Busy),
        (500, Busy),
        (503, Busy),
    ],
)
def test_an_http_status_becomes_its_error(status: int, kind: type[Exception]) -> None:
    assert type(of_status(status, "said")) is kind
