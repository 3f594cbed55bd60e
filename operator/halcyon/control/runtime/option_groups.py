"""Settings that result from several command-line options: traces, the dashboard and Prometheus.

Out of scope: the options themselves (`settings`), and values of single options (`option_values`).
"""

from __future__ import annotations

import argparse
import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from halcyon.control.reporting.dashboard_source import DashboardSettings
from halcyon.control.runtime.option_values import by_name
from halcyon.dashboard.authorization import Proxy
from halcyon.dashboard.site import LINKED, Links
from halcyon.kube.errors import SettingsError
from halcyon.kube.tracing import TracesSite
from halcyon.signals.prometheus import arrival_history
from halcyon.signals.prometheus.client import PrometheusSite

_TRACES_EXAMPLE = "http://collector.observability.svc:4318/v1/traces"


def traces(arguments: argparse.Namespace) -> TracesSite | None:
    """Return the receiver of traces; None if no endpoint is given.

    Raises:
        SettingsError: the options contradict each other, or the value of one is invalid.
    """
    url, hint = arguments.traces_endpoint, f"for example --traces-endpoint={_TRACES_EXAMPLE}"
    if not url:
        if arguments.traces_ratio is not None:
            raise SettingsError(f"--traces-ratio is given without --traces-endpoint; {hint}")
        return None
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and parts.hostname and parts.path.strip("/") and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        rule = "which is not an http:// or https:// URL with a valid host and port, and a path"
        raise SettingsError(f"--traces-endpoint is {url}, {rule}; {hint}")
    ratio = 1.0 if arguments.traces_ratio is None else arguments.traces_ratio
    # OpenTelemetry's own variables for a CA file win.
    has_ca_file = any(os.environ.get(f"OTEL_EXPORTER_OTLP_{part}CERTIFICATE") for part in ("TRACES_", ""))
    return TracesSite(url, ratio, ca_file=None if has_ca_file else _system_authorities())


def dashboard(arguments: argparse.Namespace) -> DashboardSettings | None:
    """Return the settings of the dashboard; None if it is disabled.

    Raises:
        SettingsError: the options contradict each other, or the value of one is invalid.
    """
    if arguments.dashboard == "off":
        return None
    local, networks = arguments.dashboard == "localhost", tuple(arguments.dashboard_proxies)
    if local and networks:
        raise SettingsError(
            f"--dashboard-proxy={networks[0]} is given with --dashboard=localhost, which has no sign-in; "
            "for example --dashboard=pod"
        )
    proxy = Proxy(networks, arguments.dashboard_user_header, arguments.dashboard_groups_header) if networks else None
    links = Links(**{tool: getattr(arguments, f"dashboard_{tool}") or "" for tool in LINKED})
    return DashboardSettings(local, arguments.dashboard_port, proxy, links, arguments.dashboard_cluster or "")


def prometheus(arguments: argparse.Namespace) -> PrometheusSite | None:
    """Return the settings of the site's Prometheus; None if no URL is given.

    Raises:
        SettingsError: the options contradict each other, or the value of one is invalid.
    """
    if not arguments.prometheus_url:
        for option in ("token_file", "ca_file", "gpu_matchers", "arrivals", "query"):
            if getattr(arguments, f"prometheus_{option}"):
                raise SettingsError(
                    f"--prometheus-{option.replace('_', '-')} is given without --prometheus-url; for example "
                    "--prometheus-url=http://prometheus-operated.monitoring:9090"
                )
        return None
    try:
        return PrometheusSite(
            arguments.prometheus_url,
            token_file=_readable("--prometheus-token-file", arguments.prometheus_token_file),
            ca_file=_readable("--prometheus-ca-file", arguments.prometheus_ca_file) or _system_authorities(),
            gpu_matchers=arguments.prometheus_gpu_matchers,
            arrivals=arguments.prometheus_arrivals or arrival_history.ARRIVALS,
            queries=by_name("--prometheus-query", arguments.prometheus_query),
            cluster=arguments.dashboard_cluster or "",
        )
    except ValueError as error:
        raise SettingsError(f"--prometheus-url and the options that belong to it: {error}") from error


def _system_authorities() -> Path | None:
    """Return the file with the CA certificates that the system trusts; None if there is none.

    The environment variable SSL_CERT_FILE overrides the path. Libraries that use `requests` ignore both by default.
    """
    paths = ssl.get_default_verify_paths()
    # Debian has all certificates in one file in the folder, too.
    candidates = (Path(paths.cafile) if paths.cafile else None, Path(paths.capath or "/none") / "ca-certificates.crt")
    return next((file for file in candidates if file is not None and file.is_file()), None)


def _readable(option: str, name: str) -> Path | None:
    """Return the path of a file; None if no name is given.

    Raises:
        SettingsError: the file can't be read. A missing file is usually a wrong path, and rarely a late mount.
    """
    if not name:
        return None
    path = Path(name)
    try:
        path.open("rb").close()
    except OSError as error:
        example = f"{option}=/etc/halcyon/prometheus/file, of a volume of the pod"
        raise SettingsError(f"cannot read {option}={name}: {error.strerror}; for example {example}") from None
    return path
