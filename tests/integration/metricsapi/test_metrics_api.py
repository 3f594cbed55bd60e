"""The metrics API over real TLS on loopback, asked as the API server, as a user and as nobody."""

from __future__ import annotations

import math
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from halcyon.kube.auth.callers import User
from halcyon.kube.auth.rate_limit import MAX_BURST, MAX_RATE_PER_S, Limiter
from halcyon.metricsapi import documents
from halcyon.metricsapi.auth import Gate, RequestHeaderConfig
from halcyon.metricsapi.certificates import Pair, issue, make_ca
from halcyon.metricsapi.listener import ListeningPorts
from halcyon.metricsapi.server import LABEL, METRICS, MetricsApi, build_app
from halcyon.metricsapi.tls import ServingTLS
from halcyon.scaling.hpa.metrics import RulesReading
from halcyon.scaling.observations import Missing, Value
from tests.unit.metricsapi.front_proxy import client_certificate

NOW = datetime.now(UTC)
OURS = make_ca(NOW)
SERVING = issue(OURS, ["localhost", "127.0.0.1"], NOW)
PROXY_CA = make_ca(NOW)
OTHER_CA = make_ca(NOW)
PROXY = client_certificate(PROXY_CA)
REMOTE = {
    "X-Remote-User": "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
    "X-Remote-Group": "system:authenticated",
}
ROOT = "/apis/external.metrics.k8s.io/v1beta1"
QUEUE = f"{ROOT}/namespaces/ns/queueDepth"
MODEL = {"labelSelector": "serving.halcyon.dev/model-deployment=digits"}


class Site:
    """The server and all that it asks."""

    def __init__(self) -> None:
        self.readings: dict[tuple[str, str], RulesReading | Missing | Exception] = {
            ("ns", "digits"): RulesReading(50.0, 2, Value(12.5, 48.0), Value(160.0, 48.0))
        }
        self.tokens: dict[str, User] = {"alices": User("alice", ("staff",)), "bobs": User("bob")}
        self.allowed = {("alice", "ns", "queuedepth"), ("alice", "ns", "queueDepth")}
        self.reviews_fail = False
        self.reviewed: list[str] = []
        self.ready = True
        self.now = 0.0
        """Of the limit on questions."""
        self.gate = Gate(
            front_proxy=RequestHeaderConfig(PROXY_CA.cert_pem, ("front-proxy-client",)),
            review_token=self.token,
            review_access=self.access,
            limiter=Limiter(lambda: self.now),
        )
        self.tls = ServingTLS(cert_pem=SERVING.cert_pem, key_pem=SERVING.key_pem, client_ca_pem=PROXY_CA.cert_pem)
        self.counts: dict[tuple[str, str], Value | Missing] = {("ns", "digits"): Value(7.0, 50.0)}
        self.api = MetricsApi(
            self,
            self.gate,
            monotonic=lambda: 50.0,
            utcnow=lambda: NOW,
            ready=lambda: self.ready,
        )
        self.port = 0

    async def reading(self, namespace: str, name: str) -> RulesReading | Missing:
        reading = self.readings.get((namespace, name), Missing("there is no such ModelDeployment"))
        if isinstance(reading, Exception):
            raise reading
        return reading

    async def desired(self, namespace: str, name: str) -> Value | Missing:
        return self.counts.get((namespace, name), Missing("there is no such ModelDeployment"))

    async def token(self, token: str) -> User | None:
        if self.reviews_fail:
            raise ConnectionError("no API server")
        return self.tokens.get(token)

    async def access(self, user: User, *, namespace: str, metric: str) -> bool:
        self.reviewed.append(user.name)
        return (user.name, namespace, metric) in self.allowed

    def url(self, path: str) -> str:
        return f"https://localhost:{self.port}{path}"


@asynccontextmanager
async def served() -> AsyncIterator[Site]:
    site = Site()
    hello = web.get("/more", say_hello)
    app, tls = build_app(site.api, more=[hello]), site.tls.context
    runner = await ListeningPorts().open(app, name="https", host="127.0.0.1", port=0, tls=tls)
    site.port = runner.addresses[0][1]
    try:
        yield site
    finally:
        await runner.cleanup()


async def say_hello(request: web.Request) -> web.Response:
    return web.Response(text=f"hello {request.path}")


def client_tls(tmp_path: Path, certificate: Pair | None = None, *, ca: Pair = OURS) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca.cert_pem)
    if certificate is not None:
        file = tmp_path / f"{id(certificate)}.pem"
        file.write_text(certificate.cert_pem + certificate.key_pem)
        context.load_cert_chain(file)
    return context


@asynccontextmanager
async def session(
    tmp_path: Path, certificate: Pair | None = None, *, ca: Pair = OURS
) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=client_tls(tmp_path, certificate, ca=ca))
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(10)) as client:
        yield client


async def api_response(
    site: Site,
    client: aiohttp.ClientSession,
    path: str = QUEUE,
    *,
    headers: dict[str, str] | None = None,
    params: dict[str, str] | None = None,
) -> tuple[int, Any]:
    query = MODEL if params is None else params
    async with client.get(site.url(path), headers=headers or {}, params=query) as response:
        return response.status, await response.json()


async def as_hpa(
    site: Site, tmp_path: Path, path: str = QUEUE, params: dict[str, str] | None = None
) -> tuple[int, Any]:
    async with session(tmp_path, PROXY) as client:
        return await api_response(site, client, path, headers=REMOTE, params=params)


async def test_the_hpa_gets_one_value_with_its_time_and_window(tmp_path: Path) -> None:
    async with served() as site:
        status, answer = await as_hpa(site, tmp_path)
        assert status == 200
        assert answer == {
            "kind": "ExternalMetricValueList",
            "apiVersion": "external.metrics.k8s.io/v1beta1",
            "metadata": {},
            "items": [
                {
                    "metricName": "queueDepth",
                    "metricLabels": {LABEL: "digits"},
                    "timestamp": (NOW - timedelta(seconds=2)).strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "window": 15,
                    "value": "12500m",
                }
            ],
        }
        _, answer = await as_hpa(site, tmp_path, f"{ROOT}/namespaces/ns/gpuUtilization")
        assert answer["items"][0]["value"] == "160"
        assert site.reviewed == []


async def test_a_metric_is_found_in_lower_case_as_clients_request_it(tmp_path: Path) -> None:
    async with served() as site:
        status, answer = await as_hpa(site, tmp_path, f"{ROOT}/namespaces/ns/queuedepth")
        assert (status, answer["items"][0]["metricName"]) == (200, "queueDepth")


async def test_the_planners_desired_replicas_are_a_metric_of_the_present(tmp_path: Path) -> None:
    async with served() as site:
        status, answer = await as_hpa(site, tmp_path, f"{ROOT}/namespaces/ns/desiredreplicas")
        item = answer["items"][0]
        assert (status, item["metricName"], item["value"], item["window"]) == (200, "desiredReplicas", "7", 0)
        site.counts["ns", "digits"] = Missing("the last decision is 20 s old")
        status, answer = await as_hpa(site, tmp_path, f"{ROOT}/namespaces/ns/desiredreplicas")
        assert (status, answer["message"]) == (
            404, "desiredReplicas of ModelDeployment ns/digits is unknown: the last decision is 20 s old",
        )  # fmt: skip


async def test_discovery_says_what_there_is(tmp_path: Path) -> None:
    async with served() as site:
        _, groups = await as_hpa(site, tmp_path, "/apis")
        assert [group["name"] for group in groups["groups"]] == ["external.metrics.k8s.io"]
        _, group = await as_hpa(site, tmp_path, "/apis/external.metrics.k8s.io")
        assert group["preferredVersion"]["groupVersion"] == "external.metrics.k8s.io/v1beta1"
        _, resources = await as_hpa(site, tmp_path, ROOT)
        assert [resource["name"] for resource in resources["resources"]] == [metric.lower() for metric in METRICS]
        assert resources["kind"] == "APIResourceList"


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        (Missing("no agent"), "queueDepth of ModelDeployment ns/digits is unknown: no agent"),
        (RulesReading(50.0, 1, Missing("stale"), None), "unknown: stale"),
        (RulesReading(50.0, 1, Value(math.nan, 48.0), None), "unknown"),
        (RulesReading(50.0, 1, Value(-1.0, 48.0), None), "unknown"),
        (RulesReading(50.0, 1, Value(math.inf, 48.0), None), "unknown"),
    ],
)
async def test_a_missing_value_is_an_error_with_its_reason(
    tmp_path: Path, reading: RulesReading | Missing, words: str
) -> None:
    async with served() as site:
        site.readings["ns", "digits"] = reading
        status, answer = await as_hpa(site, tmp_path)
        assert (status, answer["kind"], answer["reason"], answer["code"]) == (404, "Status", "NotFound", 404)
        assert words in answer["message"]
        assert "items" not in answer


async def test_a_metric_without_a_target_is_an_error(tmp_path: Path) -> None:
    async with served() as site:
        site.readings["ns", "digits"] = RulesReading(50.0, 1, Value(1.0, 48.0), None)
        status, answer = await as_hpa(site, tmp_path, f"{ROOT}/namespaces/ns/gpuUtilization")
        assert status == 404
        assert "no GPU" in answer["message"]


async def test_a_source_that_fails_is_a_503_without_its_words(tmp_path: Path) -> None:
    async with served() as site:
        site.readings["ns", "digits"] = RuntimeError("secret detail")
        status, answer = await as_hpa(site, tmp_path)
        assert (status, answer["reason"]) == (503, "ServiceUnavailable")
        assert "secret" not in answer["message"]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"labelSelector": ""},
        {"labelSelector": "app=digits"},
        {"labelSelector": f"{LABEL}!=digits"},
        {"labelSelector": f"{LABEL} in (a,b)"},
        {"labelSelector": f"{LABEL}"},
        {"labelSelector": f"{LABEL}="},
        {"labelSelector": f"{LABEL}=digits,app=x"},
        {"labelSelector": f"{LABEL}==digits"},
        {"labelSelector": f"{LABEL}=Digits"},
        {"labelSelector": f"{LABEL}=digits\n"},
    ],
)
async def test_anything_but_one_model_is_a_bad_request(tmp_path: Path, params: dict[str, str]) -> None:
    async with served() as site:
        status, answer = await as_hpa(site, tmp_path, QUEUE, params)
        assert (status, answer["reason"]) == (400, "BadRequest")
        assert f"{LABEL}=NAME" in answer["message"]


@pytest.mark.parametrize("path", [f"{ROOT}/namespaces/ns/other", f"{ROOT}/nodes", "/apis/apps/v1"])
async def test_a_missing_resource_is_answered_with_a_status(tmp_path: Path, path: str) -> None:
    async with served() as site:
        status, answer = await as_hpa(site, tmp_path, path)
        assert (status, answer["kind"]) == (404, "Status")


async def test_remote_headers_without_the_front_proxys_certificate_count_for_nothing(tmp_path: Path) -> None:
    async with served() as site, session(tmp_path) as client:
        for path in (QUEUE, ROOT, "/apis"):
            status, answer = await api_response(site, client, path, headers=REMOTE)
            assert (status, answer["reason"]) == (401, "Unauthorized")
        status, _ = await api_response(site, client, headers={**REMOTE, "Authorization": "Bearer bobs"})
        assert status == 403
        assert site.reviewed == ["bob"]


async def test_a_certificate_of_another_ca_does_not_get_through_the_handshake(tmp_path: Path) -> None:
    async with served() as site:
        for certificate in (client_certificate(OTHER_CA), client_certificate(OURS)):
            async with session(tmp_path, certificate) as client:
                with pytest.raises(aiohttp.ClientError):
                    await api_response(site, client, headers=REMOTE)


@pytest.mark.parametrize(
    "certificate",
    [
        client_certificate(PROXY_CA, life=timedelta(minutes=-10)),
        client_certificate(PROXY_CA, usage=ExtendedKeyUsageOID.SERVER_AUTH),
    ],
    ids=["expired", "for servers"],
)
async def test_a_certificate_that_is_not_valid_for_clients_is_refused(tmp_path: Path, certificate: Pair) -> None:
    async with served() as site, session(tmp_path, certificate) as client:
        with pytest.raises(aiohttp.ClientError):
            await api_response(site, client, headers=REMOTE)


async def test_a_certificate_with_the_wrong_name_authenticates_no_client(tmp_path: Path) -> None:
    async with served() as site, session(tmp_path, client_certificate(PROXY_CA, "kubelet")) as client:
        assert (await api_response(site, client, headers=REMOTE))[0] == 401
        site.gate.trust(RequestHeaderConfig(PROXY_CA.cert_pem))
        assert (await api_response(site, client, headers=REMOTE))[0] == 200


async def test_the_front_proxy_without_a_user_authenticates_no_client(tmp_path: Path) -> None:
    async with served() as site, session(tmp_path, PROXY) as client:
        assert (await api_response(site, client))[0] == 401
        assert (await api_response(site, client, headers={"X-Remote-User": ""}))[0] == 401


async def test_a_replaced_front_proxy_ca_ends_its_certificates_on_open_connections_too(tmp_path: Path) -> None:
    async with served() as site, session(tmp_path, PROXY) as client:
        assert (await api_response(site, client, headers=REMOTE))[0] == 200
        new_ca = make_ca(NOW)
        site.gate.trust(RequestHeaderConfig(new_ca.cert_pem, ("front-proxy-client",)))
        site.tls.trust(new_ca.cert_pem)
        assert (await api_response(site, client, headers=REMOTE))[0] == 401
        with pytest.raises(aiohttp.ClientError):
            await api_response(site, client, headers=REMOTE)
        async with session(tmp_path, client_certificate(new_ca)) as newcomer:
            assert (await api_response(site, newcomer, headers=REMOTE))[0] == 200


async def test_both_front_proxy_cas_pass_while_one_replaces_the_other(tmp_path: Path) -> None:
    async with served() as site, session(tmp_path, PROXY) as client:
        new_ca = make_ca(NOW)
        both = PROXY_CA.cert_pem + new_ca.cert_pem
        site.gate.trust(RequestHeaderConfig(both, ("front-proxy-client",)))
        site.tls.trust(both)
        assert (await api_response(site, client, headers=REMOTE))[0] == 200
        async with session(tmp_path, client_certificate(new_ca)) as newcomer:
            assert (await api_response(site, newcomer, headers=REMOTE))[0] == 200


async def test_without_a_front_proxy_ca_no_certificate_passes_and_tokens_do(tmp_path: Path) -> None:
    async with served() as site:
        site.gate.trust(None)
        site.tls.trust("")
        async with session(tmp_path, PROXY) as client:
            with pytest.raises(aiohttp.ClientError):
                await api_response(site, client, headers=REMOTE)
        async with session(tmp_path) as client:
            assert (await api_response(site, client, headers={"Authorization": "Bearer alices"}))[0] == 200


async def test_a_token_is_reviewed_and_its_access_too(tmp_path: Path) -> None:
    async with served() as site, session(tmp_path) as client:
        assert (await api_response(site, client, headers={"Authorization": "Bearer alices"}))[0] == 200
        status, answer = await api_response(site, client, headers={"Authorization": "bearer bobs"})
        assert (status, answer["reason"]) == (403, "Forbidden")
        assert 'User "bob" cannot list resource "queueDepth"' in answer["message"]
        other = f"{ROOT}/namespaces/other/queueDepth"
        assert (await api_response(site, client, other, headers={"Authorization": "Bearer alices"}))[0] == 403
        assert (await api_response(site, client, ROOT, headers={"Authorization": "Bearer bobs"}))[0] == 200


@pytest.mark.parametrize(
    "header", [{}, {"Authorization": "Bearer "}, {"Authorization": "Bearer x"}, {"Authorization": "Basic YTpi"}]
)
async def test_no_credentials_are_a_401(tmp_path: Path, header: dict[str, str]) -> None:
    async with served() as site, session(tmp_path) as client:
        status, answer = await api_response(site, client, headers=header)
        assert (status, answer["kind"], answer["reason"]) == (401, "Status", "Unauthorized")


async def test_failing_reviews_admit_no_caller(tmp_path: Path) -> None:
    async with served() as site, session(tmp_path) as client:
        site.reviews_fail = True
        status, answer = await api_response(site, client, headers={"Authorization": "Bearer alices"})
        assert (status, answer["reason"]) == (503, "ServiceUnavailable")


async def test_direct_callers_are_rate_limited_and_the_rest_cause_no_reviews(tmp_path: Path) -> None:
    async with served() as site, session(tmp_path) as client:
        bob = {"Authorization": "Bearer bobs"}
        answers = [(await api_response(site, client, headers=bob))[0] for _ in range(int(MAX_BURST) + 5)]
        assert answers == [403] * int(MAX_BURST) + [429] * 5
        assert len(site.reviewed) == MAX_BURST
        async with client.get(site.url(QUEUE), params=MODEL) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "1")
            assert (await response.json())["reason"] == "TooManyRequests"
        assert (await as_hpa(site, tmp_path))[0] == 200
        site.now += 1 / MAX_RATE_PER_S
        assert [(await api_response(site, client, headers=bob))[0] for _ in range(2)] == [403, 429]


@pytest.mark.parametrize("header", ["X-Remote-User", "X-Remote-Group", "X-Remote-Extra-Scopes", "Impersonate-User"])
async def test_a_header_changes_no_token_into_another_user(tmp_path: Path, header: str) -> None:
    async with served() as site, session(tmp_path) as client:
        spoofed = {"Authorization": "Bearer bobs", header: "alice"}
        assert (await api_response(site, client, headers=spoofed))[0] == 403
        assert site.reviewed == ["bob"]


async def test_probes_need_no_credentials(tmp_path: Path) -> None:
    async with served() as site, session(tmp_path) as client:
        for path, status in (("/healthz", 200), ("/readyz", 200), ("/openapi/v2", 404), ("/more", 200)):
            async with client.get(site.url(path)) as response:
                assert response.status == status
        site.ready = False
        async with client.get(site.url("/readyz")) as response:
            assert response.status == 503


async def test_a_new_serving_certificate_is_shown_without_dropping_a_connection(tmp_path: Path) -> None:
    async with served() as site, session(tmp_path, PROXY) as client:
        assert (await api_response(site, client, headers=REMOTE))[0] == 200
        new_ca = make_ca(NOW)
        fresh = issue(new_ca, ["localhost"], NOW)
        site.tls.serve(fresh.cert_pem, fresh.key_pem)
        # The open connection trusts the old CA alone, so an answer proves that it is the old connection.
        assert (await api_response(site, client, headers=REMOTE))[0] == 200
        async with session(tmp_path, PROXY, ca=new_ca) as newcomer:
            assert (await api_response(site, newcomer, headers=REMOTE))[0] == 200
        async with session(tmp_path, PROXY) as stranger:
            with pytest.raises(aiohttp.ClientError):
                await api_response(site, stranger, headers=REMOTE)


async def test_a_broken_certificate_leaves_the_old_one(tmp_path: Path) -> None:
    async with served() as site:
        with pytest.raises(ssl.SSLError):
            site.tls.serve(SERVING.cert_pem, PROXY.key_pem)
        with pytest.raises(ssl.SSLError):
            site.tls.trust("rubbish")
        assert (await as_hpa(site, tmp_path))[0] == 200
        site.tls.serve(SERVING.cert_pem, SERVING.key_pem)


async def test_old_tls_is_refused(tmp_path: Path) -> None:
    async with served() as site:
        context = client_tls(tmp_path)
        assert site.tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as client:
            assert (await api_response(site, client, headers={"Authorization": "Bearer alices"}))[0] == 200


async def test_a_connection_without_a_server_name_gets_the_newest_certificate_too(tmp_path: Path) -> None:
    async with served() as site:
        new_ca = make_ca(NOW)
        fresh = issue(new_ca, ["127.0.0.1"], NOW)
        site.tls.serve(fresh.cert_pem, fresh.key_pem)
        url = f"https://127.0.0.1:{site.port}/healthz"
        async with session(tmp_path, ca=new_ca) as client, client.get(url) as response:
            assert response.status == 200


def test_the_config_map_is_read() -> None:
    config = RequestHeaderConfig.from_config_map(
        {
            "requestheader-client-ca-file": PROXY_CA.cert_pem,
            "requestheader-allowed-names": '["front-proxy-client"]',
            "requestheader-username-headers": '["X-Remote-User", "X-Other-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }
    )
    assert config is not None
    assert config.allowed_names == ("front-proxy-client",)
    assert config.username_headers == ("X-Remote-User", "X-Other-User")
    assert RequestHeaderConfig.from_config_map({}) is None
    bare = RequestHeaderConfig.from_config_map({"requestheader-client-ca-file": PROXY_CA.cert_pem})
    assert bare == RequestHeaderConfig(PROXY_CA.cert_pem)


@pytest.mark.parametrize(
    "data",
    [
        {"requestheader-client-ca-file": "rubbish"},
        {"requestheader-client-ca-file": PROXY_CA.cert_pem, "requestheader-allowed-names": "front-proxy-client"},
        {"requestheader-client-ca-file": PROXY_CA.cert_pem, "requestheader-allowed-names": '{"a": 1}'},
        {"requestheader-client-ca-file": PROXY_CA.cert_pem, "requestheader-group-headers": "[1]"},
    ],
)
def test_a_config_map_that_makes_no_sense_is_refused(data: dict[str, str]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # some words are those of other packages
        RequestHeaderConfig.from_config_map(data)


@pytest.mark.parametrize(
    ("milli", "text"),
    [
        (0, "0"),
        (1, "1m"),
        (1500, "1500m"),
        (2000, "2"),
        (1_000_000, "1k"),
        (1_500_000, "1500"),
        (12_000_000_000, "12M"),
        (2**63 - 1, "9223372036854775807m"),
    ],
)
def test_quantities_are_canonical(milli: int, text: str) -> None:
    assert documents.quantity(milli) == text


@given(st.integers(0, 2**63 - 1))
def test_a_quantity_loses_nothing(milli: int) -> None:
    factors = {"m": 1, "": 10**3, "k": 10**6, "M": 10**9, "G": 10**12, "T": 10**15, "P": 10**18, "E": 10**21}
    text = documents.quantity(milli)
    number = text.rstrip("mkMGTPE")
    assert int(number) * factors[text[len(number) :]] == milli


def test_a_negative_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        documents.quantity(-1)
