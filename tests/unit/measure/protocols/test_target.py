"""URLs of servers: what is sent to which host and path, and URLs that can't be used."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon_measure.errors import TargetError
from halcyon_measure.protocols import http_client, target
from halcyon_measure.protocols.target import Target


def parsed(url: str, api: Any = "kserve") -> Target:
    return target.parse(url, api=api, transport=None, encoding=None, model="m")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://a..b:8000", "its host name between dots must have 1 to 63 valid characters"),
        ("http://" + "a" * 64 + ".example", "its host name between dots must have 1 to 63 valid characters"),
        ("http://[::1:8000", "Invalid IPv6 URL; for example http://127.0.0.1:8000 or http://[::1]:8000"),
        ("http://host:0", "its port must be 1 to 65535"),
        ("http://host:x", "its port must be 1 to 65535"),
        ("http://", "it must be a URL of HTTP or gRPC"),
        ("http://me:secret@host", "url is http://USER:PASSWORD@host; credentials in it aren't sent"),
        ("http://host/?a=1", "with api kserve it can't have a query"),
    ],
)
def test_a_url_that_can_not_be_used_is_refused(url: str, words: str) -> None:
    with pytest.raises(TargetError) as raised:
        parsed(url)
    assert words in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "api", "sent"),
    [
        ("localhost:5000/predict?top=5&x=a b", "post", "http://localhost:5000/predict?top=5&x=a%20b"),
        ("http://localhost/modèle", "post", "http://localhost:80/mod%C3%A8le"),
        ("http://localhost/a%20b/", "kserve", "http://localhost:80/a%20b/v2/models/m/infer"),
        ("http://[::1]:8000", "kserve", "http://[::1]:8000/v2/models/m/infer"),
        ("http://my_host:8000", "tfserving", "http://my_host:8000/v1/models/m:predict"),
        ("http://münchen.example", "kserve", "http://münchen.example:80/v2/models/m/infer"),
    ],
)
def test_path_and_query_are_sent_as_they_were_given(url: str, api: str, sent: str) -> None:
    assert http_client.url(parsed(url, api)) == sent
