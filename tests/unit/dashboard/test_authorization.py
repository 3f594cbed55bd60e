from collections.abc import Mapping
from ipaddress import ip_network

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from halcyon.dashboard.authorization import ALLOWED_TTL_S, DENIED_TTL_S, Authorizer, Proxy
from halcyon.dashboard.ports import Name
from halcyon.kube.auth.callers import Forbidden, Unauthenticated, User
from halcyon.kube.auth.rate_limit import MAX_BURST, MAX_RATE_PER_S
from halcyon.metricsapi.auth import TooOften

PROXY = Proxy((ip_network("10.0.0.0/24"), ip_network("fd00::/8")), "X-User", "X-Groups")


class Cluster:
    """Reviews by a table, counted; and a clock."""

    def __init__(self, rights: Mapping[str, set[str]], *, covers_all: bool = True) -> None:
        self.rights, self.covers_all, self.now = dict(rights), covers_all, 0.0
        self.reviews: list[tuple[str, ...]] = []

    async def user(self, token: str) -> User | None:
        self.reviews.append(("token", token))
        return User(token) if token in self.rights else None

    async def may_see(self, user: User, *, namespace: str, name: str = "") -> bool:
        self.reviews.append((user.name, namespace, name))
        return bool({namespace, "*"} & self.rights[user.name])

    def access(self, proxy: Proxy | None = None) -> Authorizer:
        return Authorizer(self, clock=lambda: self.now, namespaces=lambda: ["a", "b", "c"], proxy=proxy)


def request(remote: str = "192.0.2.1", **headers: str) -> web.Request:
    mocked = make_mocked_request("GET", "/", headers={key.replace("_", "-"): value for key, value in headers.items()})
    return mocked.clone(remote=remote)


async def test_a_bearer_token_and_a_cookie_are_the_same_user() -> None:
    access = Cluster({"ada": {"a"}}).access()
    assert (await access.user(request(Authorization="Bearer ada"))).name == "ada"
    assert (await access.user(request(Cookie="halcyon-token=ada"))).name == "ada"


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer eve"}, {"Authorization": "Basic ada"}, {"X_User": "ada"}]
)
async def test_other_credentials_are_anonymous(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated, match="kubectl create token"):
        await Cluster({"ada": {"a"}}).access(PROXY).user(request(**headers))


@pytest.mark.parametrize("token", ["\udcff", "schl\u00fcssel"])
async def test_a_token_that_is_not_ascii_is_anonymous_without_a_review(token: str) -> None:
    cluster = Cluster({"ada": {"a"}})
    with pytest.raises(Unauthenticated, match="kubectl create token"):
        await cluster.access().owner(token, "192.0.2.1")
    assert cluster.reviews == []


async def test_answers_count_for_a_while_good_ones_longer() -> None:
    cluster = Cluster({"ada": {"a"}})
    access = cluster.access()
    await access.owner("ada", "192.0.2.1")
    cluster.now = ALLOWED_TTL_S - 0.1
    await access.owner("ada", "192.0.2.1")
    assert cluster.reviews == [("token", "ada")]
    cluster.now = ALLOWED_TTL_S
    del cluster.rights["ada"]
    with pytest.raises(Unauthenticated):
        await access.owner("ada", "192.0.2.1")
    cluster.rights["ada"] = set()
    with pytest.raises(Unauthenticated):
        await access.owner("ada", "192.0.2.1")
    cluster.now += DENIED_TTL_S
    assert (await access.owner("ada", "192.0.2.1")).name == "ada"


async def test_invalid_tokens_of_one_address_cause_a_limited_number_of_reviews() -> None:
    cluster = Cluster({"ada": {"a"}, "bob": {"a"}})
    access = cluster.access()
    await access.user(request(Authorization="Bearer ada"))
    for number in range(int(MAX_BURST)):
        with pytest.raises(Unauthenticated):
            await access.user(request(Authorization=f"Bearer guess-{number}"))
    reviewed = len(cluster.reviews)
    with pytest.raises(TooOften) as refused:
        await access.user(request(Authorization="Bearer another-guess"))
    assert 0 < refused.value.retry_after_s <= 1 / MAX_RATE_PER_S
    with pytest.raises(TooOften):
        await access.owner("another-guess", "192.0.2.1")
    assert len(cluster.reviews) == reviewed
    # Somebody who has signed in there stays, and other addresses are not concerned.
    assert (await access.user(request(Authorization="Bearer ada"))).name == "ada"
    assert (await access.user(request("192.0.2.2", Authorization="Bearer bob"))).name == "bob"
    cluster.now += 1 / MAX_RATE_PER_S
    with pytest.raises(Unauthenticated):
        await access.user(request(Authorization="Bearer another-guess"))


async def test_a_request_without_a_token_is_no_invalid_token() -> None:
    access = Cluster({"ada": {"a"}}).access()
    for _ in range(2 * int(MAX_BURST)):
        with pytest.raises(Unauthenticated):
            await access.user(request())
    assert (await access.user(request(Authorization="Bearer ada"))).name == "ada"


async def test_users_that_may_list_all_cause_one_review() -> None:
    cluster = Cluster({"ada": {"*"}})
    assert await cluster.access().visible_namespaces(User("ada")) is None
    assert cluster.reviews == [("ada", "", "")]


async def test_other_users_see_the_namespaces_that_they_may_list() -> None:
    cluster = Cluster({"ada": {"a", "c"}})
    access = cluster.access()
    assert await access.visible_namespaces(User("ada")) == {"a", "c"}
    before = len(cluster.reviews)
    assert await access.visible_namespaces(User("ada")) == {"a", "c"}
    assert len(cluster.reviews) == before


async def test_each_model_is_reviewed_if_all_cannot_be() -> None:
    cluster = Cluster({"ada": {"*"}}, covers_all=False)
    assert await cluster.access().visible_namespaces(User("ada")) == {"a", "b", "c"}
    assert ("ada", "", "") not in cluster.reviews


async def test_a_right_does_not_extend_to_the_same_name_in_other_groups() -> None:
    cluster = Cluster({"ada": {"a"}})
    access = cluster.access()
    await access.visible_namespaces(User("ada", ("team",)))
    before = len(cluster.reviews)
    await access.visible_namespaces(User("ada", ("other",)))
    assert len(cluster.reviews) == 2 * before


async def test_a_model_is_shown_to_users_that_may_get_it() -> None:
    access = Cluster({"ada": {"a"}}).access()
    await access.may_get(User("ada"), Name("a", "m"))
    with pytest.raises(Forbidden, match=r'User "ada" cannot get .* "m" in the namespace "b"'):
        await access.may_get(User("ada"), Name("b", "m"))


@pytest.mark.parametrize(
    ("remote", "trusted"),
    [("10.0.0.7", True), ("::ffff:10.0.0.7", True), ("fd00::1", True), ("10.0.1.7", False), ("", False)],
)
async def test_a_proxy_is_known_by_its_address(remote: str, trusted: bool) -> None:
    access = Cluster({}).access(PROXY)
    asking = request(remote, X_User="ada", X_Groups="a, b,,a")
    if trusted:
        assert await access.user(asking) == User("ada", ("a", "b", "system:authenticated"))
    else:
        with pytest.raises(Unauthenticated):
            await access.user(asking)


@pytest.mark.parametrize(
    "headers", [{"X_User": "system:admin"}, {"X_User": "ada", "X_Groups": "system:masters"}, {"X_User": " "}]
)
async def test_a_proxy_makes_no_user_a_system_user(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated):
        await Cluster({}).access(PROXY).user(request("10.0.0.7", **headers))


@pytest.mark.parametrize("host", ["localhost:8090", "127.0.0.1:8090", "[::1]:8090", "LOCALHOST"])
async def test_localhost_sees_all_without_sign_in(host: str) -> None:
    access = Authorizer(None, clock=float, namespaces=list)
    user = await access.user(request(Host=host))
    assert await access.visible_namespaces(user) is None
    await access.may_get(user, Name("a", "m"))


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8090", "127.0.0.1.evil.example", "[::1"])
async def test_another_host_is_refused_without_sign_in(host: str) -> None:
    with pytest.raises(Forbidden, match="on localhost only"):
        await Authorizer(None, clock=float, namespaces=list).user(request(Host=host))
