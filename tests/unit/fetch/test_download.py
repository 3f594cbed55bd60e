"""Servers of a download, and errors whose text the store's library repeats, with values of a Secret in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore import exceptions

from halcyon.api.documents.store_identity import StoreIdentity
from halcyon.fetch.download import Remote, _store_error, download
from halcyon.fetch.errors import StoreError

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


@pytest.mark.parametrize(
    ("url", "needed"),
    [
        ("s3://models/a", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ("gs://models/a", "GOOGLE_SERVICE_ACCOUNT_KEY"),
        ("hf://acme/m@0123456789012345678901234567890123456789", "HF_TOKEN"),
        ("https://models.example/a.tar.gz", "authorization"),
        ("mlflow://m/1", "authorization"),
    ],
)
def test_a_missing_secret_is_named_with_the_keys_that_it_needs(tmp_path: Path, url: str, needed: str) -> None:
    mount = tmp_path.with_name(
        f"{tmp_path.name}-credentials"
    )  # as the kubelet mounts an optional Secret that doesn't exist
    (mount / "..1").mkdir(parents=True)
    (mount / "..data").symlink_to("..1")
    remote = Remote(url, credentials=mount, secret="models-s3")

    with pytest.raises(StoreError, match=f"Secret models-s3, which .* does not exist or is empty; .*, with {needed}$"):
        download(remote, tmp_path, lambda _: None)


def test_a_denial_names_the_keys_that_the_secret_has(tmp_path: Path) -> None:
    (tmp_path / "AWS_ACCESS_KEY").write_text("AKIAX")
    remote = Remote("s3://models/a", credentials=tmp_path, secret="models-s3")
    message = str(_store_error(exceptions.PermissionDeniedError("403 Forbidden"), remote, {}, ""))

    assert (
        "with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY that may read it (Secret models-s3 has AWS_ACCESS_KEY)"
        in message
    )
