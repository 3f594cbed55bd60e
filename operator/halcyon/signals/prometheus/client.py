"""Client that runs one query against the site's Prometheus. Only this module uses the `prometheus-api-client` library.

The library and its dependency `requests` are imported with the first query, so an operator without Prometheus never
loads them. Each query opens its own connection. A renewed token or CA therefore takes effect with the next query, and
no query uses a connection that Prometheus has closed. Proxies and passwords from the environment (`HTTP_PROXY`, .netrc)
are not used.

If Prometheus does not respond or denies access, other queries would fail as well, so these cases have a separate
exception. Out of scope: when to query (`source`), and the queries themselves (`dcgm`, `arrival_history`).
"""

# PrometheusError
# └── PrometheusUnavailable    no response, or access denied: other queries would fail too

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from halcyon.api.authorities import accept_as_they_are
from halcyon.signals.prometheus import arrival_history

CONNECT_TIMEOUT_S = 3.0
_MAX_ERROR_LENGTH = 200
"""Maximum number of characters that an error message quotes from a query or a response."""
_MAX_TOKEN_LENGTH = 16384

Rows = list[Mapping[str, Any]]
"""The `data.result` field of a Prometheus API response."""


class PrometheusError(Exception):
    """Error raised if a query failed. The message names the URL without credentials, the query, and a remedy."""


class PrometheusUnavailable(PrometheusError):  # noqa: N818  # describes a state
    """Error raised if Prometheus did not respond or denied access, so that other queries would fail as well."""


@dataclass(frozen=True)
class PrometheusSite:
    """Settings for the site's Prometheus, or a compatible HTTP API (Thanos, Mimir, VictoriaMetrics)."""

    url: str
    """Base URL of the API, without `/api/v1`, for example `http://prometheus-operated.monitoring:9090`."""
    token_file: Path | None = None
    """File with a bearer token. The file is read for each query, because tokens are rotated."""
    ca_file: Path | None = None
    """PEM file with trusted CAs for https. If it is None, the CAs of the `requests` library are trusted."""
    gpu_matchers: str = ""
    """Label matchers for the series of NVIDIA's DCGM exporter, for example `namespace="gpu-operator"`. They can exclude
    other clusters, and series that tenants' pods expose under the same names."""
    arrivals: str = arrival_history.ARRIVALS
    """PromQL query for a model's requests per second over the last five minutes, with the variables `$namespace`, `$name` and
    `$cluster`. Its result must be one series."""
    queries: Mapping[str, str] = field(default_factory=dict)
    """PromQL queries that specs may use as targets, by name, with the same variables."""
    cluster: str = ""
    """Value of the label `cluster` in this cluster's series; empty if Prometheus has only the series of one cluster."""

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ValueError: a field is invalid; the message contains no secrets.
        """
        try:
            parts = urlsplit(self.url)
            plain = not parts.query and not parts.fragment and "@" not in parts.path
            good = parts.scheme in {"http", "https"} and parts.hostname and plain
            _ = parts.port
        except ValueError:
            good = False
        if not good:
            raise ValueError(
                "the URL of Prometheus must consist of http or https, a host, and at most a path; "
                "for example http://prometheus-operated.monitoring:9090"
            )
        if "@" in parts.netloc and self.token_file is not None:
            raise ValueError(f"Prometheus at {self.shown}: set a password in the URL or a token file, not both")
        if not self.arrivals.strip():
            raise ValueError(
                f"Prometheus at {self.shown}: the query for arrivals is empty; for example {arrival_history.ARRIVALS}"
            )
        if not re.fullmatch(r"[^{}]*", self.gpu_matchers):
            raise ValueError(
                f"Prometheus at {self.shown}: the matchers {self.gpu_matchers!r} must be the part between the braces; "
                'for example namespace="gpu-operator"'
            )

    @property
    def shown(self) -> str:
        """Return the URL of Prometheus without credentials."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))

    def __repr__(self) -> str:
        """Return a text representation of the settings without credentials."""
        return f"PrometheusSite({self.shown})"


@dataclass(frozen=True)
class QueryRange:
    """Time range of a range query: start and end in seconds since the epoch, and the seconds between its samples."""

    begin: float
    end: float
    step_s: float


class QueryFunction(Protocol):
    """Interface of a function that runs one query and blocks until it has a result. It is called in a thread."""

    def __call__(self, site: PrometheusSite, query: str, over: QueryRange | None, timeout_s: float, /) -> Rows:
        """Run a range query, or an instant query if `over` is None, and return the rows of its result.

        Raises:
            PrometheusError: the query failed.
        """


def query_prometheus(site: PrometheusSite, query: str, over: QueryRange | None, timeout_s: float, /) -> Rows:
    """Run a query over HTTP. This is the `QueryFunction` used in production.

    `timeout_s` limits the wait for each part of the response, and the time that Prometheus spends on the query.
    """
    try:
        # Imported here so that an operator without Prometheus never loads them.
        import requests  # noqa: PLC0415
        from prometheus_api_client import PrometheusApiClientException, PrometheusConnect  # noqa: PLC0415
        from urllib3.util.retry import Retry  # noqa: PLC0415
        from urllib3.util.ssl_ import create_urllib3_context  # noqa: PLC0415
    except ImportError as error:
        raise PrometheusError(
            f"Prometheus at {site.shown} can't be queried: {error.name} is not installed; "
            "for example pip install 'halcyon-operator[prometheus]'"
        ) from error
    headers = _authorization(site)
    with requests.Session() as session:
        session.trust_env = False
        session.verify = True if site.ca_file is None else str(site.ca_file)
        # No retries in the library: they would block the only query thread. The next poll retries.
        url = site.url.rstrip("/")
        connection = PrometheusConnect(url, headers=headers, retry=Retry(total=0), session=session)
        context = accept_as_they_are(create_urllib3_context())
        adapter = requests.adapters.HTTPAdapter(max_retries=Retry(total=0))
        adapter.init_poolmanager(1, 1, ssl_context=context)
        session.mount(url, adapter)
        timeout = (min(CONNECT_TIMEOUT_S, timeout_s / 2), timeout_s * 0.8)
        # Prometheus aborts the query at about the time at which the client times out.
        params = {"timeout": f"{timeout_s * 800:.0f}ms"}
        try:
            if over is None:
                rows = connection.custom_query(query, params=params, timeout=timeout)
            else:
                begin, end = (datetime.fromtimestamp(at, UTC) for at in (over.begin, over.end))
                rows = connection.custom_query_range(
                    query, begin, end, f"{over.step_s:g}", params=params, timeout=timeout
                )
        except PrometheusApiClientException as error:
            raise _status_error(site, query, str(error)) from error
        except (ValueError, KeyError, TypeError) as error:  # before OSError: requests' JSONDecodeError is also one
            raise PrometheusUnavailable(
                f"Prometheus at {site.shown}: the response is not from Prometheus's API ({type(error).__name__}); is this the base URL of "
                f"/api/v1, without a login page in front of it? Query: {_short(query)}"
            ) from error
        except OSError as error:  # includes requests' own exceptions
            # From None: messages of requests may contain the URL with its password, or the header with the token.
            raise PrometheusUnavailable(
                f"Prometheus at {site.shown} can't be reached: {_cause(error)}; check the address, the network policy and "
                f"the CA file. Query: {_short(query)}"
            ) from None
    if not isinstance(rows, list):
        raise PrometheusUnavailable(f"Prometheus at {site.shown}: the response has no rows. Query: {_short(query)}")
    return rows


@contextmanager
def parsing_errors(site: PrometheusSite, query: str) -> Iterator[None]:
    """Convert parsing errors raised in the `with` block to PrometheusError."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PrometheusError(
            f"Prometheus at {site.shown}: the response can't be used: {type(error).__name__}: {_short(str(error))}. "
            f"Query: {_short(query)}"
        ) from error


def _authorization(site: PrometheusSite) -> dict[str, str]:
    if site.token_file is None:
        return {}
    try:
        token = site.token_file.read_text().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise PrometheusUnavailable(
            f"Prometheus at {site.shown}: the token file {site.token_file} can't be read: {reason}"
        ) from None
    if not re.fullmatch(r"[!-~]+", token) or len(token) > _MAX_TOKEN_LENGTH:
        raise PrometheusUnavailable(
            f"Prometheus at {site.shown}: the token file {site.token_file} must hold one token and nothing else, "
            f"1 to {_MAX_TOKEN_LENGTH} characters without spaces"
        )
    return {"Authorization": f"Bearer {token}"}


def _status_error(site: PrometheusSite, query: str, message: str) -> PrometheusError:
    """Return the exception for an HTTP response with a status other than 200."""
    match = re.search(r"HTTP Status Code (\d{3})", message)
    status = int(match[1]) if match else 0
    fix = {
        400: "correct the query",
        401: "configure a token file with a token that it accepts",
        403: "allow the token's account to query",
        404: "the URL must be the base URL of /api/v1",
        422: "correct the query",
        429: "it limits the rate of queries: allow one query every 10 s",
        503: "it is starting or overloaded, or the query took too long",
    }.get(status, "see its log")
    kind = PrometheusError if status in {400, 422} else PrometheusUnavailable
    return kind(f"Prometheus at {site.shown}: {_short(message)}; {fix}. Query: {_short(query)}")


def _cause(error: BaseException) -> str:
    """Return the innermost message of an exception chain, from the operating system, the resolver or TLS.

    This message contains no memory addresses, so equal failures have equal messages.
    """
    deepest, cause = error, error
    while (next_cause := cause.__cause__ or cause.__context__) is not None:
        cause = next_cause
        if isinstance(cause, OSError) and getattr(cause, "strerror", None):
            deepest = cause
    text = getattr(deepest, "verify_message", None) or getattr(deepest, "strerror", None)
    return f"{text}" if text else type(error).__name__


def _short(text: str) -> str:
    return text if len(text) <= _MAX_ERROR_LENGTH else text[:_MAX_ERROR_LENGTH] + "..."
