"""`halcyon infer --url`: URLs that can't be used are one line."""

from __future__ import annotations

import pytest

from halcyon_cli.errors import Failure
from halcyon_cli.infer.connection import ModelConnection


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://host:x", "ftp://host", "", "http://a..b", "http://" + "a" * 300]
)
def test_a_url_without_a_usable_host_is_named(url: str) -> None:
    with pytest.raises(Failure, match=r"must be a URL, for example|is unreachable"):
        ModelConnection.to_url(url, timeout_s=1.0)
