"""Servers of a download, and errors whose text the store's library repeats, with values of a Secret in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore import exceptions

from halcyon.api.documents.store_identity import StoreIdentity
from halcyon.fetch.download import Remote, _store_error

FAILURE = "the request for a model at http://store.example/a/b failed: connection refused"
REMOTE = Remote(url="s3://models/a", endpoint="http://store.example")


def masked_error(error: str, **secrets: str) -> str:
    return str(_store_error(exceptions.GenericError(error), REMOTE, secrets, ""))


@pytest.mark.parametrize("value", ["", "a", "-", ".", "//", "the"])
def test_a_value_that_is_no_secret_leaves_the_error_as_it_is(value: str) -> None:
    assert masked_error(FAILURE, AWS_SESSION_TOKEN=value) == f"s3://models/a: {FAILURE}"


@given(st.text(max_size=3))
def test_no_value_of_a_few_characters_garbles_an_error(value: str) -> None:
    assert masked_error(FAILURE, authorization=value) == f"s3://models/a: {FAILURE}"


def test_a_short_value_is_masked_if_it_stands_by_itself() -> None:
    assert (
        masked_error("key test is not in latest", AWS_ACCESS_KEY_ID="test") == "s3://models/a: key *** is not in latest"
    )


def test_a_secret_is_masked_wherever_it_stands_beside_an_empty_one() -> None:
    masked = masked_error("bad keyid AKIAEXAMPLE0001x", AWS_ACCESS_KEY_ID="AKIAEXAMPLE0001", AWS_SESSION_TOKEN="")

    assert masked == "s3://models/a: bad keyid ***x"


def test_a_secret_that_holds_another_is_masked_as_a_whole() -> None:
    masked = masked_error(
        "no: wJalrXUtn/K7MDENG", AWS_ACCESS_KEY_ID="wJalrXUtn", AWS_SECRET_ACCESS_KEY="wJalrXUtn/K7MDENG"
    )

    assert masked == "s3://models/a: no: ***"


@pytest.mark.parametrize(
    ("region", "domain"),
    [
        (None, "us-east-1.amazonaws.com"),
        ("eu-central-1", "eu-central-1.amazonaws.com"),
        ("us-gov-west-1", "us-gov-west-1.amazonaws.com"),
        ("cn-north-1", "cn-north-1.amazonaws.com.cn"),
        ("cn-northwest-1", "cn-northwest-1.amazonaws.com.cn"),
        ("eusc-de-east-1", "eusc-de-east-1.amazonaws.eu"),
    ],
)
def test_a_bucket_and_its_token_service_have_the_domain_of_their_region(region: str | None, domain: str) -> None:
    remote = Remote("s3://models/a", region=region)
    assert remote.server == f"https://s3.{domain}"
    assert StoreIdentity("aws", "arn:aws:iam::1:role/models").servers(remote.bucket_region) == (
        f"https://sts.{domain}",
    )


def test_an_object_with_two_slashes_in_its_key_is_named() -> None:
    message = masked_error('Encountered object with invalid path: Path "a//junk.bin" contained empty path segment')
    assert message.startswith("s3://models/a: the object a//junk.bin ")
    assert "rename or delete it" in message
