"""docs/benchmarks/reaction.md, from the rows of build/bench/reaction.json. Pure but for the write."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "reaction.md"
Entry = dict[str, Any]

_HEAD = """# Reaction: from a step of the load to /scale

Written by `make bench-reaction` on one machine; the same figures for machines: build/bench/reaction.json. Times run from the
moment that the load grows to the arrival of the watch's event with the higher spec.replicas, over network, agent, decision and
write. With few values the p99 is the largest of them. `-`: not measured, or it does not apply.
"""
_TARGETS: dict[str, str] = {
    "one": "p50 <= 3 s, p99 <= 6 s",
    "fleet": "p50 <= 3 s, p99 <= 6 s, <= 1 core, <= 1 GiB",
    "loop": "p99 decision age <= 5 s, one decision <= 100 us",
    "step": "raised <= 3 s; <= 10 % at <= 1.4 x (step), <= 12 % at <= 2.0 x (bursts)",
    "peers": "none: what the same pods and load give others",
    "parity": "100 % of the counts agree within one sync",
}
_TITLES = {
    "one": "One model on real Triton",
    "fleet": "Among many models",
    "loop": "The decision loop alone",
    "step": "A step and bursts on pods that take 20 s to load",
    "peers": "Peers on the same pods and the same load",
    "parity": "Through an HPA and directly",
}
_SPEED = (
    ("run", "what"),
    ("actuator", "actuator"),
    ("HPA sync, s", "hpa_sync_s"),
    ("p50, s", "step_to_scale_p50_s"),
    ("p99, s", "step_to_scale_p99_s"),
    ("steps", "steps"),
    ("full count p50, s", "step_to_full_count_p50_s"),
    ("not raised", "not_raised"),
    ("cores", "cpu_cores"),
    ("MiB", "rss_mib"),
    ("decision p50, us", "decision_us_p50"),
    ("of it CPU, us", "decision_cpu_us_p50"),
    ("decision age p99, s", "decision_age_p99_s"),
)
_LOSS = (
    ("run", "what"),
    ("actuator", "actuator"),
    ("late, %", "late_pct"),
    ("failed, %", "failed_pct"),
    ("violations, %", "violations_pct"),
    ("pod-seconds / clairvoyant", "pod_seconds_ratio"),
    ("raised after, s", "step_to_scale_p50_s"),
    ("most pods", "pods_most"),
    ("counts written", "counts"),
)
_SAME = (
    ("run", "what"),
    ("HPA sync, s", "hpa_sync_s"),
    ("same on the way up, %", "same_count_up_pct"),
    ("same on the way down, %", "same_count_down_pct"),
    ("as decided, HPA, %", "as_decided_hpa_pct"),
    ("as decided, Direct, %", "as_decided_direct_pct"),
    ("counts passed up, HPA", "counts_passed_up_hpa"),
    ("Direct", "counts_passed_up_direct"),
    ("counts passed down, HPA", "counts_passed_down_hpa"),
    ("Direct", "counts_passed_down_direct"),
    ("at the end, HPA", "last_hpa"),
    ("at the end, Direct", "last_direct"),
)
_COLUMNS = {"one": _SPEED, "fleet": _SPEED, "loop": _SPEED, "step": _LOSS, "peers": _LOSS, "parity": _SAME}
_NOTES = {
    "parity": "By the same load each model has a planner of its own, which looks at its own moments: counts differ where "
    "decisions do; on the way down also because what each has learnt of the load's noise decides how long it keeps what was "
    "needed (60 s by the one and 72 s by the other, in a run that was looked into). As decided: a count beside what its own "
    "model's planner decided. With a schedule, both planners make the same decisions.",
    "loop": "Decision age: how long ago a model's last decision was made, over all models and moments. An idle model's "
    "agent reports every 4.5 s, so even a loop without any delay would show a p99 of 4.5 s.",
    "step": "35 to 210 req/s, open-loop gRPC, objective 500 ms, deadline 10 s. Violations: late, refused or failed, of all "
    "requests of the run. Pod-seconds from creation until a pod is gone, over those of a schedule that knows the load and "
    "starts pods ahead of it. The first burst outruns the one pod there is by 149 requests a second, so that 12 % of all are lost "
    "after 21.5 s; a start takes 20 s in initialize() and some 2 s around it. Without a spare pod, the target of the bursts can't be met; "
    "the last rows have a spare pod through `minReplicas: 2`, and include its cost.",
    "peers": "All have Halcyon's data plane, which bounds the queue and refuses what would be late. Without it, measured once on such "
    "pods behind an unbounded queue (KEDA 2.21 on queue depth or in-flight): the count rose after 13 to 17 s, 25 to 27 % violations at "
    "2.9 x on the step; 22 to 25 % at 3.2 to 3.4 x on the bursts. KEDA is as docs/guides/keda.md has it: a ScaledObject that asks a "
    "Prometheus, which scrapes each second, for the requests in flight and in the queue; 8 a replica. Where its HPA happens to look while "
    "nine of the calm load are in flight, it goes to 2 before the step comes, and stays there for its five minutes.",
}


def text(rows: Sequence[Entry]) -> str:
    """The page."""
    parts = [_HEAD]
    for part, columns in _COLUMNS.items():
        found = [row for row in rows if row["part"] == part]
        if not found:
            continue
        parts += [f"## {_TITLES[part]}", "", f"Target: {_TARGETS[part]}.", "", *_table(columns, found), ""]
        if part in _NOTES:
            parts += [_NOTES[part], ""]
        stand_ins = dict.fromkeys(words for row in found for words in row["stand_ins"])
        if stand_ins:
            parts += [f"Not real: {'; '.join(stand_ins)}.", ""]
    return "\n".join(parts).rstrip() + "\n"


def write(rows: Sequence[Entry], file: Path = PAGE) -> None:
    """Write the page."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text(rows))


def _table(columns: Sequence[tuple[str, str]], rows: Sequence[Entry]) -> list[str]:
    used = [column for column in columns if any(_value(row, column[1]) is not None for row in rows)]
    head = "| " + " | ".join(title for title, _ in used) + " |"
    return [
        head,
        "|" + "|".join("---" for _ in used) + "|",
        *("| " + " | ".join(_shown(_value(row, key)) for _, key in used) + " |" for row in rows),
    ]


def _value(row: Entry, key: str) -> Any:
    return (len(row["step_to_scale_s"]) or None) if key == "steps" else row.get(key)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
