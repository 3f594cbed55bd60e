"""docs/benchmarks/dataplane.md, from build/bench/dataplane.json. Pure but for the write."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.dataplane.results import KEYS_OF

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "dataplane.md"

_HEAD = """# The data plane: what it costs, what it loses

`make bench-dataplane` runs each measurement once, on one machine, and writes the results to this page. The file
build/bench/dataplane.json contains the figures on this page in machine-readable form. The proxies are measured
alternately, for a few seconds each, with the same servers behind them. Client, proxies and servers share one machine.
You can therefore compare the rows of one table with each other, but the figures don't show the capacity of a real
installation. `-` means not measured.
"""


@dataclass(frozen=True)
class Target:
    """A figure and its target."""

    key: str
    figure: str
    bound: str
    value: Callable[[Mapping[str, Any]], float | None]
    holds: Callable[[float], bool]


def _plain(key: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda content: content.get(key)


def _within(key: str, inner: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda content: (content.get(key) or {}).get(inner)


def _answered(content: Mapping[str, Any]) -> float | None:
    held, answered = content.get("held"), content.get("held_answered")
    return None if not held or answered is None else answered / held


TARGETS = (
    Target("loss", "failed requests, 2 replicas, 2 balancers", "0", _within("loss", "failed"), lambda v: v == 0),
    Target(
        "loss_one_replica",
        "failed requests, 1 replica",
        "0, because requests are held while a pod starts",
        _within("loss_one_replica", "failed"),
        lambda v: v == 0,
    ),
    Target(
        "added_latency_ms_p50",
        "added median latency of gRPC, one request at a time, ms",
        "<= 0.2",
        _plain("added_latency_ms_p50"),
        lambda v: v <= 0.2,
    ),
    Target(
        "throughput_share",
        "gRPC throughput, divided by that of a direct connection to the servers",
        ">= 0.65",
        _within("throughput_share", "halcyon"),
        lambda v: v >= 0.65,
    ),
    Target(
        "cpu_us_per_request",
        "CPU time of HAProxy per gRPC request, 32 requests in flight on one connection, us",
        "<= 25",
        _plain("cpu_us_per_request"),
        lambda v: v <= 25,
    ),
    Target(
        "agent_idle_cores", "CPU use of an idle agent, cores", "< 0.01", _plain("agent_idle_cores"), lambda v: v < 0.01
    ),
    Target(
        "unequal_p99_ratio",
        "one of three servers is three times slower, 80 % load: p99 divided by that of HAProxy alone",
        "<= 1.1",
        _plain("unequal_p99_ratio"),
        lambda v: v <= 1.1,
    ),
    Target(
        "ready_to_first_request_s",
        "time from a pod's readiness to its first request, p99, s",
        "<= 0.3",
        _plain("ready_to_first_request_s"),
        lambda v: v <= 0.3,
    ),
    Target(
        "terminating_to_last_request_s",
        "time from a pod's termination to its last new request, p99, s",
        "<= 0.3",
        _plain("terminating_to_last_request_s"),
        lambda v: v <= 0.3,
    ),
    Target(
        "wake_s",
        "at zero replicas: time from the first request to the write to /scale, s",
        "<= 1",
        _plain("wake_s"),
        lambda v: v <= 1,
    ),
    Target("held_answered", "share of the held requests that were answered", "all", _answered, lambda v: v == 1),
    Target("rss_mib", "resident memory of a balancer pod, MiB", "<= 80", _plain("rss_mib"), lambda v: v <= 80),
    Target(
        "goodput_at_3x",
        "goodput at three times the capacity, divided by the capacity",
        ">= 0.9",
        _plain("goodput_at_3x"),
        lambda v: v >= 0.9,
    ),
    Target(
        "haproxy_exits",
        "exits of HAProxy workers while 2,000 pods are replaced",
        "0",
        _plain("haproxy_exits"),
        lambda v: v == 0,
    ),
)
_TITLES = {
    "throughput": "Ways to the same servers",
    "unequal": "One server of three is three times slower",
    "exits": "Pods replaced under load",
    "service": "A plain Service",
    "loss": "What is lost: two replicas, two balancers",
    "single": "What is lost: one replica",
    "zero": "At zero",
    "overload": "Three times the capacity",
    "rest": "A balancer pod",
}


def text(content: Mapping[str, Any]) -> str:
    """Return the page."""
    lines = [_HEAD, *_targets(content)]
    for part, title in _TITLES.items():
        results = (content.get("parts") or {}).get(part)
        if results is None:
            continue
        lines += ["", f"## {title}", ""]
        if results["short"]:
            lines += ["A short run, to try it: not a measurement.", ""]
        lines += _SECTIONS.get(part, _facts)(content, results["details"])
        if results["stand_ins"]:
            lines += ["", "This measurement differs from production:", ""]
            lines += [f"- {words[0].upper()}{words[1:]}." for words in "; ".join(results["stand_ins"]).split("; ")]
    return "\n".join(lines).rstrip() + "\n"


def write(content: Mapping[str, Any], file: Path = PAGE) -> None:
    """Write the page."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text(content))


def _targets(content: Mapping[str, Any]) -> list[str]:
    rows = []
    for target in TARGETS:
        value = target.value(content)
        verdict = "-" if value is None else "yes" if target.holds(value) else "**no**"
        if value is not None and _is_short(content, target.key):
            verdict += ", in a short run"
        rows.append([target.figure, _shown(value), target.bound, verdict])
    return _table(["figure", "measured", "target", "holds"], rows)


def _is_short(content: Mapping[str, Any], key: str) -> bool:
    part = next(name for name, keys in KEYS_OF.items() if key in keys)
    return bool(((content.get("parts") or {}).get(part) or {}).get("short"))


def _ways(content: Mapping[str, Any], details: Mapping[str, Any]) -> list[str]:
    shares = content.get("throughput_share") or {}
    rows = [
        [
            name.replace("_", " "),
            _shown(share),
            _shown((details["share_spread"].get(name) or [None])[0]),
            _shown((details["share_spread"].get(name) or [None, None])[1]),
            _shown(details["cpu_us_per_request"].get(name)),
            _shown(details["added_latency_ms_p50"].get(name)),
        ]
        for name, share in shares.items()
        if name != "service"
    ]
    lines = _table(["way", "share of direct", "least", "most", "CPU, us per request", "added p50, ms"], rows)
    return [
        *lines,
        "",
        (
            f"With 32 requests in flight on one connection and no proxy (`direct`), the servers answer {details['direct_per_s']:,} requests per "
            f"second. With one request at a time and no proxy, the median latency is {details['direct_ms_p50']} ms (measured in "
            f"{details['rounds']} rounds). The agent in a balancer pod uses {details['agent_us_per_request']} us of CPU time per request. With two "
            f"balancers, each balancer has 16 requests in flight. In alternating measurements, Halcyon reaches {_shown(details['share_of_haproxy'])} "
            "times the throughput of HAProxy without Halcyon. Halcyon's target was 0.92 times the throughput of HAProxy without Halcyon. The target "
            "of 0.92 is the ratio of two expected throughputs, each given as a share of the throughput without a proxy: 65 % for Halcyon, and 71 % "
            "for HAProxy without Halcyon."
        ),
        *_missing(details),
    ]


def _unequal(_content: Mapping[str, Any], details: Mapping[str, Any]) -> list[str]:
    rows = [
        [
            name,
            _shown(details["p50_ms"][name]),
            _shown(details["p99_ms"][name]),
            str(details["failed"][name]),
            " ".join(f"{share:.0%}" for share in details["shares"][name]),
        ]
        for name in details["p50_ms"]
    ]
    return [
        *_table(["way", "p50, ms", "p99, ms", "failed", "shares, the slow server last"], rows),
        "",
        (
            f"The client sends an average of {details['rate_rps']:g} requests per second, at random times, over a single gRPC channel. In "
            f"{len(details['ratios'])} rounds, Halcyon's p99 latency divided by the p99 latency of HAProxy without Halcyon was "
            f"{', '.join(map(str, details['ratios']))}."
        ),
        *_missing(details),
    ]


def _loss(key: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], list[str]]:
    def section(content: Mapping[str, Any], details: Mapping[str, Any]) -> list[str]:
        by_event = (content.get(key) or {}).get("by_event") or {}
        rows = [
            [event, *(_shown(counts[k]) for k in ("seconds", "requests", "failed"))]
            for event, counts in by_event.items()
        ]
        return [*_table(["event", "seconds", "requests", "failed"], rows), "", *_facts(content, details)]

    return section


def _facts(_content: Mapping[str, Any], details: Mapping[str, Any]) -> list[str]:
    rows = [
        _memory(value) if name == "rss_mib_by_program" else [name.replace("_", " "), _shown(value)]
        for name, value in details.items()
        if value not in ({}, [])
    ]
    return _table(["detail", "value"], rows) if rows else []


def _memory(mib: Mapping[str, float]) -> list[str]:
    return [
        "Memory (RSS) per program, in MiB",
        f"agent {mib['agent']}, HAProxy {mib['haproxy']}; whole pod: {mib['rss']} RSS, {mib['pss']} PSS",
    ]


_SECTIONS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], list[str]]] = {
    "throughput": _ways,
    "unequal": _unequal,
    "loss": _loss("loss"),
    "single": _loss("loss_one_replica"),
}


def _missing(details: Mapping[str, Any]) -> list[str]:
    return [f"\n{name} is not in this measurement: {' '.join(why.split())}" for name, why in details["missing"].items()]


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{str(name).replace('_', ' ')} {_shown(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(map(_shown, value)) or "none"
    return str(value)
