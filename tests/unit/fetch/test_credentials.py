"""Credentials and CA certificates as editors leave them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from halcyon.fetch.errors import StoreError
from halcyon.fetch.stores import secret_values
from halcyon.metricsapi.certificates import renewed

CA = renewed(None, ("localhost",), datetime.now(UTC)).bundle_pem
SECRET = "of the Secret that spec.model.source.credentials.secretName names"


def secret(folder: Path, **values: bytes) -> Path:
    for name, content in values.items():
        (folder / name.replace("_crt", ".crt")).write_bytes(content)
    return folder


@pytest.mark.parametrize("content", [b"AKIAX", b"AKIAX\n", b"AKIAX\r\n", b" AKIAX ", b"\xef\xbb\xbfAKIAX\r\n"])
def test_a_value_is_read_without_the_marks_of_editors(tmp_path: Path, content: bytes) -> None:
    assert secret_values(secret(tmp_path, AWS_ACCESS_KEY_ID=content), None) == {"AWS_ACCESS_KEY_ID": "AKIAX"}


def test_keys_of_other_programs_are_not_read(tmp_path: Path) -> None:
    assert secret_values(secret(tmp_path, password=b"\xff\xfe"), None) == {}


def test_no_secret_has_no_values() -> None:
    assert secret_values(None, None) == {}


def test_a_value_in_utf_16_is_named_with_a_remedy(tmp_path: Path) -> None:
    values = secret(tmp_path, HF_TOKEN="hf_x".encode("utf-16"))
    with pytest.raises(StoreError, match=f"the key HF_TOKEN {SECRET} is not text in UTF-8; .* -Encoding ascii"):
        secret_values(values, None)


@pytest.mark.parametrize("key", ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "authorization"])
def test_a_value_of_several_lines_is_an_error_without_the_value(tmp_path: Path, key: str) -> None:
    with pytest.raises(StoreError, match=f"the key {key} {SECRET} has several lines") as error:
        secret_values(secret(tmp_path, **{key: b"first-part\nsecond-part"}), None)
    assert "part" not in str(error.value)


def test_a_key_file_of_google_may_have_several_lines(tmp_path: Path) -> None:
    values = secret(tmp_path, GOOGLE_SERVICE_ACCOUNT_KEY=b"\xef\xbb\xbf{\r\n}\r\n")
    assert secret_values(values, None) == {"GOOGLE_SERVICE_ACCOUNT_KEY": "{\r\n}"}


@pytest.mark.parametrize("content", [b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_an_invalid_ca_is_named_and_not_the_keys(tmp_path: Path, content: bytes) -> None:
    values = secret(tmp_path, AWS_ACCESS_KEY_ID=b"AKIAX", AWS_SECRET_ACCESS_KEY=b"x", ca_crt=content)
    with pytest.raises(
        StoreError,
        match=f"the key ca.crt {SECRET} has no CA certificates, or one that is not valid; .*BEGIN CERTIFICATE",
    ):
        secret_values(values, None)


def test_an_invalid_ca_of_the_site_names_its_config_map(tmp_path: Path) -> None:
    (tmp_path / "site").write_bytes("x".encode("utf-16"))
    with pytest.raises(StoreError, match=r"caConfigMap names, key ca\.crt, is not text"):
        secret_values(None, tmp_path / "site")
    with pytest.raises(StoreError, match="the CA certificates of the site can't be read: No such file"):
        secret_values(None, tmp_path / "missing")


def test_comments_in_any_language_are_left_out_of_certificates(tmp_path: Path) -> None:
    (tmp_path / "site").write_text(f"# NetLock Főtanúsítvány\n{CA}")
    text = secret_values(secret(tmp_path, ca_crt=f"\ufeff{CA}".encode()), tmp_path / "site")["ca.crt"]
    assert text.isascii()
    assert text.count("BEGIN CERTIFICATE") == 2 * CA.count("BEGIN CERTIFICATE")
    ssl.create_default_context().load_verify_locations(cadata=text)


def test_an_empty_ca_is_no_ca(tmp_path: Path) -> None:
    assert secret_values(secret(tmp_path, ca_crt=b"\n"), None) == {}


def test_errors_of_a_data_set_name_its_field(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"the Secret that spec.input.credentials.secretName names"):
        secret_values(secret(tmp_path, AWS_ACCESS_KEY_ID=b"\xff"), None, field="spec.input")
