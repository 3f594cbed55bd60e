"""The file of API keys: digests and names, whatever the Secret holds."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from halcyon.balancer.config.api_keys import digests

KEY = b"0123456789abcdef"


def test_a_key_is_kept_as_its_digest_with_its_clients_name() -> None:
    # sha256sum says the same.
    digest = "9F9F5111F7B27A781F1F1DDDE5EBC2DD2B796BFC7365C9C28B548E564176929F"
    assert digests({"bob": KEY + b"\n", "alice": KEY}) == (f"{digest} alice\n{digest} bob\n", [])


def test_a_malformed_key_is_dropped_and_named_without_its_text() -> None:
    text, wrong = digests(
        {"alice": KEY, "short": KEY[1:], "spaced": b"a b" * 9, "long": b"x" * 513, "odd": b"\xff" * 20}
    )
    assert text.count("\n") == 1
    assert [warning.split()[0] for warning in wrong] == ["long", "odd", "short", "spaced"]
    assert not any("a b" in warning or "xx" in warning for warning in wrong)


@given(st.dictionaries(st.text(max_size=8), st.binary(max_size=40)))
def test_every_line_is_a_digest_and_a_name(keys: dict[str, bytes]) -> None:
    text, wrong = digests(keys)
    lines = text.split("\n")[:-1]
    assert len(lines) + len(wrong) == len(keys)
    assert all(re.fullmatch(r"[0-9A-F]{64} [-._a-zA-Z0-9]{1,253}", line) for line in lines)
