"""What an error of a download says when the store's library repeats values of its Secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore import exceptions

from halcyon.fetch.download import Remote, _store_error

SAID = "the request for a model at http://store.example/a/b failed: connection refused"
REMOTE = Remote(url="s3://models/a", endpoint="http://store.example")


def masked_error(said: str, **secrets: str) -> str:
    return str(_store_error(exceptions.GenericError(said), REMOTE, secrets, ""))


@pytest.mark.parametrize("value", ["", "a", "-", ".", "//", "the"])
def test_a_value_that_is_no_secret_leaves_the_error_as_it_is(value: str) -> None:
    assert masked_error(SAID, AWS_SESSION_TOKEN=value) == f"s3://models/a: {SAID}"


@given(st.text(max_size=3))
def test_no_value_of_a_few_characters_garbles_an_error(value: str) -> None:
    assert masked_error(SAID, authorization=value) == f"s3://models/a: {SAID}"


def test_a_short_value_is_masked_if_it_stands_by_itself() -> None:
    assert (
        masked_error("key test is not in latest", AWS_ACCESS_KEY_ID="test") == "s3://models/a: key *** is not in latest"
    )


def test_a_secret_is_masked_wherever_it_stands_beside_an_empty_one() -> None:
    found = masked_error("bad keyid AKIAEXAMPLE0001x", AWS_ACCESS_KEY_ID="AKIAEXAMPLE0001", AWS_SESSION_TOKEN="")

    assert found == "s3://models/a: bad keyid ***x"


def test_a_secret_that_holds_another_is_masked_as_a_whole() -> None:
    found = masked_error(
        "no: wJalrXUtn/K7MDENG", AWS_ACCESS_KEY_ID="wJalrXUtn", AWS_SECRET_ACCESS_KEY="wJalrXUtn/K7MDENG"
    )

    assert found == "s3://models/a: no: ***"
