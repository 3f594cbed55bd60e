"""Which Prometheus a site has, and putting one question to it: the only module that knows its client.

The client and what it brings (requests) are imported with the first question, so a site without a Prometheus never loads them.
Each question has a connection of its own: a token or CA that was renewed counts at once, and none meets a connection that
Prometheus closed meanwhile. Proxies and passwords of the environment (`HTTP_PROXY`, .netrc) are not used.

PrometheusError
└── Unanswered    nobody answered, or refused to: other questions would fare no better

Not here: when to ask (`prometheus`), what to ask (`dcgm`, `recorded`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from halcyon.signals.prometheus import arrival_history

CONNECT_S = 3.0
_MAX_ERROR_LENGTH = 200
"""Characters of a question or an answer in an error."""
_MAX_TOKEN_LENGTH = 16384

Rows = list[Mapping[str, Any]]
"""`data.result` of Prometheus's answer."""


class PrometheusError(Exception):
    """A question has no usable answer. Names the URL without credentials, the question, and what to do."""


class Unanswered(PrometheusError):  # noqa: N818  # says what is
    """Nobody answered, or refused to: other questions would fare no better."""


@dataclass(frozen=True)
class PrometheusSite:
    """A Prometheus (or what speaks its HTTP API: Thanos, Mimir, VictoriaMetrics) that a site lets the operator read."""

    url: str
    """The base below which `/api/v1` lies, for example `http://prometheus-operated.monitoring:9090`."""
    token_file: Path | None = None
    """File of a bearer token; read with each question, for tokens rotate."""
    ca_file: Path | None = None
    """PEM of whom to trust for https; the usual authorities where it is left out."""
    gpu_matchers: str = ""
    """What DCGM's series must match, for example `namespace="gpu-operator"`: keeps out other clusters, and what tenants' pods
    expose under DCGM's names."""
    arrivals: str = arrival_history.ARRIVALS
    """PromQL for a model's requests per second over the last five minutes, with `$namespace` and `$name`; one series."""

    def __post_init__(self) -> None:
        """Raises ValueError where a field can't work, without its secrets."""
        try:
            parts = urlsplit(self.url)
            plain = not parts.query and not parts.fragment and "@" not in parts.path
            good = parts.scheme in {"http", "https"} and parts.hostname and plain
            _ = parts.port
        except ValueError:
            good = False
        if not good:
            raise ValueError(
                "the URL of Prometheus must be http or https, a host, and no more than a path; "
                "good: http://prometheus-operated.monitoring:9090"
            )
        if "@" in parts.netloc and self.token_file is not None:
            raise ValueError(f"Prometheus at {self.shown}: a password in the URL or a token file, not both")
        if not self.arrivals.strip():
            raise ValueError(
                f"Prometheus at {self.shown}: the query for arrivals is empty; good: {arrival_history.ARRIVALS}"
            )
        if not re.fullmatch(r"[^{}]*", self.gpu_matchers):
            raise ValueError(
                f"Prometheus at {self.shown}: the matchers {self.gpu_matchers!r} must be what stands between the braces; "
                'good: namespace="gpu-operator"'
            )

    @property
    def shown(self) -> str:
        """The URL without credentials, for people."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))

    def __repr__(self) -> str:
        """Without credentials."""
        return f"PrometheusSite({self.shown})"


@dataclass(frozen=True)
class QueryRange:
    """A range query's times, in seconds since the epoch, and the seconds from one sample to the next."""

    begin: float
    end: float
    step_s: float


class Ask(Protocol):
    """Puts one question and waits for the answer. Called in a thread."""

    def __call__(self, site: PrometheusSite, question: str, over: QueryRange | None, limit_s: float, /) -> Rows:
        """The rows: of now, or over a range of time.

        Raises:
            PrometheusError: there are none.
        """


def ask_prometheus(site: PrometheusSite, question: str, over: QueryRange | None, limit_s: float, /) -> Rows:
    """An `Ask` of the real one.

    `limit_s` bounds the wait for each part of the answer, and how long Prometheus may work on it.
    """
    try:
        # Only where a Prometheus is configured: see above.
        import requests  # noqa: PLC0415
        from prometheus_api_client import PrometheusApiClientException, PrometheusConnect  # noqa: PLC0415
        from urllib3.util.retry import Retry  # noqa: PLC0415
    except ImportError as error:
        raise PrometheusError(
            f"Prometheus at {site.shown} can't be asked: {error.name} is not installed; "
            "good: pip install 'halcyon-operator[prometheus]'"
        ) from error
    headers = _authorization(site)
    with requests.Session() as session:
        session.trust_env = False
        session.verify = True if site.ca_file is None else str(site.ca_file)
        # Its own retries would sleep with the one thread that asks; the next poll is the retry.
        asked = PrometheusConnect(site.url.rstrip("/"), headers=headers, retry=Retry(total=0), session=session)
        timeout = (min(CONNECT_S, limit_s / 2), limit_s * 0.8)
        # Prometheus gives up when nobody listens any more.
        params = {"timeout": f"{limit_s * 800:.0f}ms"}
        try:
            if over is None:
                rows = asked.custom_query(question, params=params, timeout=timeout)
            else:
                begin, end = (datetime.fromtimestamp(at, UTC) for at in (over.begin, over.end))
                rows = asked.custom_query_range(
                    question, begin, end, f"{over.step_s:g}", params=params, timeout=timeout
                )
        except PrometheusApiClientException as error:
            raise _refused(site, question, str(error)) from error
        except (ValueError, KeyError, TypeError) as error:  # before OSError: requests' JSON error is both
            raise Unanswered(
                f"Prometheus at {site.shown}: the answer is not Prometheus's ({type(error).__name__}); is this the URL below "
                f"which /api/v1 lies, and no login page before it? Asked: {_short(question)}"
            ) from error
        except OSError as error:  # requests' own errors among them
            # From None: requests' texts may hold the URL with its password, or the header with the token.
            raise Unanswered(
                f"Prometheus at {site.shown} can't be reached: {_cause(error)}; check the address, the network policy and "
                f"the CA file. Asked: {_short(question)}"
            ) from None
    if not isinstance(rows, list):
        raise Unanswered(f"Prometheus at {site.shown}: an answer without rows. Asked: {_short(question)}")
    return rows


@contextmanager
def not_understood(site: PrometheusSite, question: str) -> Iterator[None]:
    """Raises PrometheusError for what within can't be made of the rows of an answer."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PrometheusError(
            f"Prometheus at {site.shown}: the answer can't be used: {type(error).__name__}: {_short(str(error))}. "
            f"Asked: {_short(question)}"
        ) from error


def _authorization(site: PrometheusSite) -> dict[str, str]:
    if site.token_file is None:
        return {}
    try:
        token = site.token_file.read_text().strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not text"
        raise Unanswered(f"Prometheus at {site.shown}: the token file {site.token_file} can't be read: {why}") from None
    if not re.fullmatch(r"[!-~]+", token) or len(token) > _MAX_TOKEN_LENGTH:
        raise Unanswered(
            f"Prometheus at {site.shown}: the token file {site.token_file} must hold one token and nothing else, "
            f"1 to {_MAX_TOKEN_LENGTH} characters without spaces"
        )
    return {"Authorization": f"Bearer {token}"}


def _refused(site: PrometheusSite, question: str, said: str) -> PrometheusError:
    """The error of an answer with another status than 200."""
    match = re.search(r"HTTP Status Code (\d{3})", said)
    status = int(match[1]) if match else 0
    todo = {
        400: "correct the query",
        401: "give it a token file with a token that it accepts",
        403: "give the token's account the right to query",
        404: "the URL must be that below which /api/v1 lies",
        422: "correct the query",
        429: "it limits its clients: allow this one a query every 10 s",
        503: "it is starting, overloaded, or took too long for the query",
    }.get(status, "look into its log")
    kind = PrometheusError if status in {400, 422} else Unanswered
    return kind(f"Prometheus at {site.shown}: {_short(said)}; {todo}. Asked: {_short(question)}")


def _cause(error: BaseException) -> str:
    """What the operating system, the resolver or TLS said, which is the same each time, without addresses of objects."""
    deepest, seen = error, error
    while (behind := seen.__cause__ or seen.__context__) is not None:
        seen = behind
        if isinstance(seen, OSError) and getattr(seen, "strerror", None):
            deepest = seen
    text = getattr(deepest, "verify_message", None) or getattr(deepest, "strerror", None)
    return f"{text}" if text else type(error).__name__


def _short(text: str) -> str:
    return text if len(text) <= _MAX_ERROR_LENGTH else text[:_MAX_ERROR_LENGTH] + "..."
