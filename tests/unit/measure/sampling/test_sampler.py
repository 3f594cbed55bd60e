"""Settings of what is read, and the addresses that follow from them."""

from __future__ import annotations

import re
from urllib.parse import parse_qs

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


SERIES = (
    {"__name__": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "pod": "dcgm-1", "namespace": "gpu", "exported_pod": "m-0"},
    {"__name__": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "pod": "m-1", "namespace": "team"},
    {"__name__": "kepler_pod_cpu_joules_total", "pod": "kepler-1", "pod_name": "m-2", "zone": "package"},
    {"__name__": "kepler_pod_cpu_joules_total", "pod": "kepler-1", "pod_name": "m-2", "zone": "core"},
    {"__name__": "kepler_pod_cpu_joules_total", "pod_name": "m-2", "zone": "package", "state": "terminated"},
    {"__name__": "kepler_container_package_joules_total", "pod": "kepler-1", "pod_name": "m-3", "mode": "idle"},
)


def answered(_: prometheus.Prometheus, path: str) -> object:
    """Answer an instant query with the samples of the series that it selects."""
    fields = parse_qs(path.partition("?")[2])
    form = re.fullmatch(r"(\w+)\{(.*)\}\[(\d+)s\]", fields["query"][0])
    assert form is not None
    matchers = re.findall(r'(\w+)=~"([^"]*)"', form[2])
    end_s = float(fields["time"][0])
    return {
        "data": {
            "result": [
                {"metric": labels, "values": [[end_s - int(form[3]), "1"], [end_s, "5"]]}
                for labels in SERIES
                if labels["__name__"] == form[1]
                and all(re.fullmatch(value, labels.get(name, "")) for name, value in matchers)
            ]
        }
    }


@pytest.mark.parametrize(
    ("metric", "pods", "count"),
    [
        (prometheus.GPU_ENERGY, "m-0", 1),
        (prometheus.GPU_ENERGY, "m-1", 1),
        (prometheus.GPU_ENERGY, "m-9", 0),
        (prometheus.CPU_ENERGY[0], "m-2", 1),
        (prometheus.CPU_ENERGY[1], "m-3", 1),
    ],
)
def test_energy_is_selected_by_the_labels_of_its_exporter(
    metric: str, pods: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus.Prometheus, "_get", answered)
    client = prometheus.Prometheus("http://p:9090")
    selectors = prometheus.selectors(metric, pods=pods, namespace="")
    series = [entry for selector in selectors for entry in client.series(selector, begin_s=1.7e9, end_s=1.7e9 + 10)]
    assert [entry.points for entry in series] == [((0, 1), (10, 5))] * count


def test_energy_of_another_namespace_is_not_selected() -> None:
    (selector,) = prometheus.selectors(prometheus.CPU_ENERGY[0], pods="m-.*", namespace="team")
    assert (
        selector
        == 'kepler_pod_cpu_joules_total{pod_name=~"m-.*",pod_namespace=~"team",zone=~"package",state=~"|running"}'
    )
