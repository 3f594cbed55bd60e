"""What the options mean, and which can't work."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from halcyon.api.spec.placement import Placement
from halcyon.control.runtime import app, settings
from halcyon.control.runtime.settings import OperatorSettings
from halcyon.dashboard.site import Links
from halcyon.kube.errors import SettingsError
from halcyon.render.site import SERVICE_ANNOTATIONS
from halcyon.signals.prometheus.arrival_history import ARRIVALS
from halcyon.signals.prometheus.client import PrometheusSite

NEEDED = ("--namespace=halcyon-system", "--operator-image=o", "--balancer-image=b", "--server-image=s")
URL = "http://prometheus:9090"


def parsed_settings(*options: str) -> OperatorSettings:
    parser = argparse.ArgumentParser(exit_on_error=False)
    settings.add_arguments(parser)
    return settings.of(parser.parse_args([*NEEDED, *options]))


def test_prometheus_is_off_without_a_url() -> None:
    assert parsed_settings().prometheus is None


def test_a_url_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file := tmp_path / "ca.crt").write_text("pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert parsed_settings(f"--prometheus-url={URL}").prometheus == PrometheusSite(URL, arrivals=ARRIVALS, ca_file=file)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    (debians := tmp_path / "ca-certificates.crt").write_text("pem")
    assert parsed_settings(f"--prometheus-url={URL}").prometheus == PrometheusSite(
        URL, arrivals=ARRIVALS, ca_file=debians
    )
    debians.unlink()
    assert parsed_settings(f"--prometheus-url={URL}").prometheus == PrometheusSite(URL, arrivals=ARRIVALS)


def test_every_option_reaches_the_site(tmp_path: Path) -> None:
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("secret")
    ca.write_text("pem")
    parsed = parsed_settings(
        f"--prometheus-url={URL}",
        f"--prometheus-token-file={token}",
        f"--prometheus-ca-file={ca}",
        '--prometheus-gpu-matchers=job="dcgm"',
        '--prometheus-arrivals=sum(rate(x{a="$name"}[5m]))',
    )

    assert parsed.prometheus == PrometheusSite(URL, token, ca, 'job="dcgm"', 'sum(rate(x{a="$name"}[5m]))')


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prometheus-url=prometheus:9090"], "for example http://prometheus-operated.monitoring:9090"),
        ([f"--prometheus-url={URL}", "--prometheus-gpu-matchers={a}"], 'for example namespace="gpu-operator"'),
        ([f"--prometheus-url={URL}", "--prometheus-arrivals= "], "the query for arrivals is empty"),
        (
            [f"--prometheus-url={URL}", "--prometheus-token-file=no/such"],
            "cannot read --prometheus-token-file=no/such",
        ),
        ([f"--prometheus-url={URL}", "--prometheus-ca-file=/"], "cannot read --prometheus-ca-file=/: Is a directory"),
        (["--prometheus-ca-file=ca.crt"], "--prometheus-ca-file is given without --prometheus-url"),
        (["--prometheus-token-file=t"], "--prometheus-token-file is given without --prometheus-url"),
        (["--prometheus-gpu-matchers=a"], "--prometheus-gpu-matchers is given without --prometheus-url"),
        (["--prometheus-arrivals=a"], "--prometheus-arrivals is given without --prometheus-url"),
        (
            [f"--prometheus-url={URL}", "--prometheus-query=jobs=a", "--prometheus-query=jobs=b"],
            "--prometheus-query is given twice for one of jobs; give each name once",
        ),
    ],
    ids=str,
)
def test_an_impossible_setting_is_refused_with_option_and_good_example(options: list[str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parsed_settings(*options)

    assert message in str(caught.value)
    assert "--prometheus-" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(SettingsError) as caught:
        parsed_settings("--prometheus-url=https://ml:hunter2@prometheus?x=1")

    assert "hunter2" not in str(caught.value)


@pytest.fixture
def _own_log() -> Iterator[None]:
    """The operator's log handler ends with the test: its stream does, and each later message would be printed as a failure to log."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_own_log")
def test_the_operator_ends_with_one_line_that_says_what_is_wrong(capfd: pytest.CaptureFixture[str]) -> None:
    assert app.main([*NEEDED, "--prometheus-url=prometheus:9090"]) == 1

    (line,) = capfd.readouterr().err.splitlines()
    assert "the URL of Prometheus must consist of http or https" in line


def test_a_gpu_budget_is_a_number_and_none_is_no_limit() -> None:
    assert parsed_settings().gpu_budget is None
    assert parsed_settings("--gpu-budget=0").gpu_budget == 0
    with pytest.raises(argparse.ArgumentError, match="'-1' is not a number of GPUs; for example 64"):
        parsed_settings("--gpu-budget=-1")


@pytest.mark.parametrize(
    "url", ["http://[::1/v1/traces", "http://collector:port/v1/traces", "http://collector:99999/v1/x"]
)
def test_a_traces_endpoint_without_a_valid_address_is_rejected_with_an_example(url: str) -> None:
    with pytest.raises(SettingsError, match="for example --traces-endpoint=http:"):
        parsed_settings(f"--traces-endpoint={url}")


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--workers=0", "'0' is not a number from 1 to 1000; for example 32"),
        ("--workers=-4", "'-4' is not a number from 1 to 1000; for example 32"),
        ("--port=0", "'0' is not a number from 1 to 65535; for example 10250"),
        ("--http-port=99999", "'99999' is not a number from 1 to 65535; for example 8080"),
        ("--dashboard-port=http", "'http' is not a number from 1 to 65535; for example 8090"),
    ],
)
def test_ports_and_workers_out_of_range_are_rejected_with_an_example(option: str, reason: str) -> None:
    with pytest.raises(argparse.ArgumentError) as caught:
        parsed_settings(option)

    assert reason in str(caught.value)


@pytest.mark.parametrize("limit", ["", "2", "1.5", "50m"])
def test_cpu_limit_is_an_amount_of_cpu_or_none(limit: str) -> None:
    assert parsed_settings(f"--cpu-limit={limit}").cpu_limit == limit


@pytest.mark.parametrize("limit", ["49m", "0", "2Gi", "two", "-1"])
def test_cpu_limit_below_the_requests_is_rejected_with_an_example(limit: str) -> None:
    with pytest.raises(argparse.ArgumentError, match="for example 2 or 1500m"):
        parsed_settings(f"--cpu-limit={limit}")


def test_balancers_may_run_anywhere_without_a_taint_by_default() -> None:
    assert parsed_settings().balancers == Placement()
    placement = parsed_settings(
        '--balancer-placement={"nodeSelector":{"pool":"edge"},"tolerations":[{"key":"a","operator":"Exists"}]}'
    ).balancers
    assert placement.node_selector == {"pool": "edge"}
    assert [t.to_dict() for t in placement.tolerations or ()] == [{"key": "a", "operator": "Exists"}]
    for bad in ("pool=edge", '{"affinity": {}}', '{"tolerations": [{"operator": "Exists"}]}'):
        with pytest.raises(argparse.ArgumentError, match="is not a placement"):
            parsed_settings(f"--balancer-placement={bad}")


def test_network_policies_are_made_where_their_peers_are_named() -> None:
    assert parsed_settings().network is None
    network = parsed_settings(
        '--network-policies={"operator": [{"podSelector": {}}], "apiServerPorts": [6443]}'
    ).network
    assert network is not None
    assert network.operator == ({"podSelector": {}},)
    assert (network.clients, network.scrapers, network.egress, network.api_server_ports) == ((), (), (), (6443,))
    for bad in (
        "podSelector",
        "{}",
        '{"operator": []}',
        '{"operator": [{}], "from": []}',
        '{"operator": [{}], "apiServerPorts": [0]}',
    ):
        with pytest.raises(argparse.ArgumentError, match=r"(?s)has invalid peers.*for example "):
            parsed_settings(f"--network-policies={bad}")


def test_gpu_prices_are_by_product_and_a_missing_one_is_not_zero() -> None:
    assert parsed_settings().prices is None
    prices = parsed_settings("--gpu-price=NVIDIA-L4=0.80", "--gpu-price=default=2.5", "--currency=EUR").prices
    assert prices is not None
    assert (prices.currency, prices.of("NVIDIA-L4"), prices.of("NVIDIA-H200")) == ("EUR", 0.8, 2.5)
    without = parsed_settings("--gpu-price=NVIDIA-L4=0").prices
    assert without is not None
    assert (without.of("NVIDIA-L4"), without.of(None)) == (0.0, None)
    for bad, message in (
        ("2.5", "has no product; for example NVIDIA-L4=0.80"),
        ("a=-1", "is not a price"),
        ("a=nan", "is not a price"),
    ):
        with pytest.raises(argparse.ArgumentError, match=message):
            parsed_settings(f"--gpu-price={bad}")


def test_the_annotations_of_services_are_beginnings_of_keys_with_a_domain() -> None:
    assert parsed_settings().service_annotations == SERVICE_ANNOTATIONS
    assert parsed_settings("--service-annotations=").service_annotations == ()
    assert parsed_settings("--service-annotations=a.example/, b.example/x-").service_annotations == (
        "a.example/",
        "b.example/x-",
    )
    for bad in ("example.com", "/x", "*"):
        with pytest.raises(
            argparse.ArgumentError, match="is not a prefix of an annotation key with a domain; for example service"
        ):
            parsed_settings(f"--service-annotations={bad}")


def test_namespaces_are_watched_as_often_as_named_and_by_default_all() -> None:
    assert parsed_settings().watch_namespaces == ()
    assert parsed_settings("--watch-namespace=").watch_namespaces == ()
    assert parsed_settings(*(f"--watch-namespace={name}" for name in ("b", "a", "b"))).watch_namespaces == ("b", "a")


def test_the_cluster_of_the_dashboard_is_a_label_value() -> None:
    chosen = parsed_settings("--dashboard=localhost", "--dashboard-cluster=prod-eu-1")
    assert chosen.dashboard is not None
    assert chosen.dashboard.cluster == "prod-eu-1"
    unnamed = parsed_settings("--dashboard=localhost").dashboard
    assert unnamed is not None
    assert unnamed.cluster == ""
    for bad in ("", "a b", "-a", "a-", "<b>", "a" * 64):
        with pytest.raises(argparse.ArgumentError, match="is not the name of a cluster; for example prod-eu-1"):
            parsed_settings(f"--dashboard-cluster={bad}")


def test_links_of_the_dashboard_are_base_urls() -> None:
    chosen = parsed_settings(
        "--dashboard=localhost", "--dashboard-grafana=https://g.example.com/", "--dashboard-runbooks=http://r/x"
    )
    assert chosen.dashboard is not None
    assert chosen.dashboard.links == Links("https://g.example.com", "", "http://r/x")
    for bad in (
        "javascript:alert(1)",
        "grafana.example.com",
        "https://u:p@g",
        "https://g?a=b",
        "https://g/<b>",
        "https://[",
    ):
        with pytest.raises(argparse.ArgumentError, match=r"is no base URL; for example https://grafana"):
            parsed_settings("--dashboard=localhost", f"--dashboard-alerts={bad}")


def test_a_gpu_product_has_one_price() -> None:
    with pytest.raises(SettingsError, match="--gpu-price is given twice for one of NVIDIA-L4; give each name once"):
        parsed_settings("--gpu-price=NVIDIA-L4=0.80", "--gpu-price=NVIDIA-L4=0.90")
