"""API keys of clients, as files and mounted Secrets have them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from halcyon.balancer.config import api_keys
from halcyon_batch.batch import _key_header
from halcyon_measure.errors import SettingError
from halcyon_measure.protocols.api_key import authorization

GOOD = b"0123456789abcdef"


@pytest.mark.parametrize(
    "keys",
    [
        {"admin": b"", "zed": GOOD},
        {"a": b"short", "b": GOOD},
        {".alice": GOOD},
        {"a": "schl\u00fcssel-0123456789".encode(), "b": GOOD},
        {"a": b"\xef\xbb\xbf" + GOOD, "b": GOOD + b"1\r\n"},
        {"a": GOOD + b"\n" + GOOD, "b": GOOD},
        {"a": b"x" * 513, "b": b"\t" + GOOD + b"\n\n"},
    ],
)
def test_the_key_from_a_mounted_secret_is_one_that_balancers_accept(keys: dict[str, bytes], tmp_path: Path) -> None:
    data = tmp_path / "..2026"
    data.mkdir()
    for name, key in keys.items():
        (data / name).write_bytes(key)
        (tmp_path / name).symlink_to(data / name)
    name, value = authorization(tmp_path)
    digest = sha256(value.removeprefix("Bearer ").encode()).hexdigest().upper()
    assert name == "Authorization"
    assert digest in api_keys.digests(keys)[0]
    assert _key_header(str(tmp_path)) == ((name, value),)


def test_a_folder_without_a_valid_key_is_named_without_its_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("too short")
    with pytest.raises(SettingError, match="none of the 1 files has a valid API key; it must have 16 to 512") as caught:
        authorization(tmp_path)
    assert "too short" not in str(caught.value)
    assert _key_header(str(tmp_path)) == ()


@pytest.mark.parametrize("content", [b"", b"one\ntwo", b"a b", b"\xff"])
def test_a_file_that_no_header_can_contain_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(SettingError, match="key is not an API key; it must be one line of visible ASCII characters"):
        authorization(tmp_path / "key")
    with pytest.raises(SettingError, match="No such file"):
        authorization(tmp_path / "none")


def test_a_file_may_have_a_key_of_any_length_for_other_servers(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k-1\n")
    assert authorization(tmp_path / "key") == ("Authorization", "Bearer k-1")
