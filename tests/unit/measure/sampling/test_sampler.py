"""Settings of what is read, and the addresses that follow from them."""

from __future__ import annotations

import pytest

from halcyon_measure.errors import SettingError
from halcyon_measure.protocols.target import parse
from halcyon_measure.sampling import prometheus
from halcyon_measure.sampling.sampler import Sampler, SamplingSettings, Source


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (SamplingSettings(servers=(Source(pod="a", url="a:8002"),)), "a:8002 isn't a URL of metrics; for example http"),
        (SamplingSettings(prometheus="p:9090"), "prometheus is p:9090; it must be a URL of HTTP, for example http"),
    ],
)
def test_invalid_urls_are_refused(settings: SamplingSettings, text: str) -> None:
    with pytest.raises(SettingError, match=text):
        settings.check()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8002/metrics"),
        ("grpc://127.0.0.1:8001", "http://127.0.0.1:8002/metrics"),
    ],
)
def test_metrics_are_beside_the_other_ports(url: str, expected: str) -> None:
    target = parse(url, api="kserve", transport=None, encoding=None, model="m")
    (server,) = Sampler(target, SamplingSettings()).observations().servers
    assert server.samples == ()
    assert [source.url for source in Sampler(target, SamplingSettings()).sources] == [expected]


def test_metrics_pages_of_several_pods_behind_a_proxy_are_all_sampled() -> None:
    target = parse("http://127.0.0.1:8000", api="kserve", transport=None, encoding=None, model="m")
    urls = [f"http://127.0.0.1:8001/api/v1/namespaces/n/pods/{pod}:8002/proxy/metrics" for pod in "ab"]
    servers = tuple(Source(pod="127.0.0.1:8001", url=url) for url in (*urls, urls[0]))
    sampler = Sampler(target, SamplingSettings(servers=servers))
    assert [source.url for source in sampler.sources] == urls
    assert len({server.pod for server in sampler.observations().servers}) == 2


def test_sources_of_another_api_are_not_guessed() -> None:
    target = parse("http://127.0.0.1:8501", api="tfserving", transport=None, encoding=None, model="m")
    assert Sampler(target, SamplingSettings()).observations().servers == ()


def test_a_selector_quotes_its_expressions() -> None:
    assert prometheus.selector("x", {"pod": 'a"-.*', "namespace": "team"}) == 'x{pod=~"a\\"-.*",namespace=~"team"}'
