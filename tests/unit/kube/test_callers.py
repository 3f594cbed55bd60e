"""Callers of the operator's servers: tokens, service accounts, and answers that expire."""

from __future__ import annotations

import pytest

from halcyon.kube.auth.callers import ReviewCache, ServiceAccount, bearer_token, service_account, token_digest


@pytest.mark.parametrize(
    ("username", "account"),
    [
        ("system:serviceaccount:team:m-balancer", ServiceAccount("team", "m-balancer")),
        ("system:serviceaccount:team:", None),
        ("system:serviceaccount::m", None),
        ("system:serviceaccount:team", None),
        ("system:serviceaccount:team:m:x", None),
        ("system:node:n1", None),
        ("ada", None),
    ],
)
def test_service_accounts_are_read_from_user_names(username: str, account: ServiceAccount | None) -> None:
    assert service_account(username) == account


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Bearer ", ""),
        ("Bearer \udcff", ""),
        ("Bearer schl\u00fcssel", ""),
        ("Bearer", ""),
        ("Basic abc", ""),
        ("abc", ""),
        ("", ""),
    ],
)
def test_bearer_tokens_are_read_from_the_authorization_header(header: str, token: str) -> None:
    assert bearer_token({"Authorization": header}) == token


def test_a_request_without_an_authorization_header_has_no_token() -> None:
    assert bearer_token({}) == ""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_answer_expires_and_a_discarded_one_is_gone() -> None:
    clock = Clock()
    cache: ReviewCache[str | None] = ReviewCache(clock)
    assert cache.get("a") is None
    assert cache.put("a", None, expires_at=10.0) is None
    cache.put("b", "ada", expires_at=20.0)
    clock.now = 9.9
    assert cache.get("a") == (None,)
    clock.now = 10.0
    assert (cache.get("a"), cache.get("b")) == (None, ("ada",))
    cache.discard("b")
    cache.discard("b")
    assert cache.get("b") is None


def test_a_full_cache_drops_expired_answers_first_and_else_all() -> None:
    clock = Clock()
    cache: ReviewCache[int] = ReviewCache(clock, 2)
    cache.put(1, 1, expires_at=1.0)
    cache.put(2, 2, expires_at=9.0)
    clock.now = 1.0
    cache.put(3, 3, expires_at=9.0)
    assert [cache.get(key) for key in (1, 2, 3)] == [None, (2,), (3,)]
    cache.put(4, 4, expires_at=9.0)
    assert [cache.get(key) for key in (2, 3, 4)] == [None, None, (4,)]


def test_a_digest_does_not_contain_its_token() -> None:
    assert token_digest("secret") == token_digest("secret") != token_digest("secret2")
    assert b"secret" not in token_digest("secret")
