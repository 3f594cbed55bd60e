"""docs/benchmarks/reaction.md, from the rows of build/bench/reaction.json. Pure but for the write."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "reaction.md"
Entry = dict[str, Any]

_HEAD = """# Reaction: from a step of the load to /scale

This page is written by `make bench-reaction`, which runs everything on one machine. The file build/bench/reaction.json has the
same figures in a machine-readable form. Reaction time is the time from the increase in load until a watch on the ModelDeployment
receives the higher spec.replicas. The reaction time includes the network, the agent, the decision and the write to /scale. If a
row has few values, its p99 is the largest value. `-` means not measured or not applicable.
"""
_SPEED_TARGET = "The target is a reaction time with p50 <= 3 s and p99 <= 6 s"
_TARGETS: dict[str, str] = {
    "one": f"{_SPEED_TARGET}.",
    "fleet": f"{_SPEED_TARGET}. The operator's targets are <= 1 core and <= 1 GiB.",
    "loop": "The targets are a p99 of the decision age of <= 5 s, and <= 100 us for one decision.",
    "step": "The target is a scale-up within 3 s. For a step, the targets are <= 10 % violations at <= 1.4 x the clairvoyant "
    "pod-seconds; for bursts, <= 12 % at <= 2.0 x.",
    "peers": "The runs with other autoscalers have no target; they show the results on the same pods and load.",
    "parity": "The target is that 100 % of the replica counts written by the HPA and by the operator are equal within one HPA sync.",
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
    "parity": "In the first run (the same load), each model has its own planner, and the two planners decide at "
    "different moments. The replica counts therefore differ when the decisions differ. When the load falls, each "
    "planner also keeps its replicas for a different time, because it has learnt a different noise of the "
    "load (60 s and 72 s in one run that was examined). The columns `as decided` compare a model's replica "
    "count with the decision of its own planner. In the run with a schedule, both planners make the same "
    "decisions.",
    "loop": "The decision age is the time since a model's last decision, sampled over all models and the whole run. An idle model's "
    "agent reports every 4.5 s, so even a loop without any delay would show a p99 of 4.5 s.",
    "step": "The load rises from 35 to 210 gRPC requests per second (open loop). The latency objective is 500 ms, and "
    "requests have a deadline of 10 s. Violations are the share of all requests that were late, rejected or failed. "
    "Pod-seconds count from a pod's creation until it is gone. Each row divides the pod-seconds by those of a clairvoyant "
    "schedule, which knows the load and starts pods ahead of it. The first burst exceeds the capacity of the "
    "only pod by 149 requests per second. After 21.5 s of such a burst, 12 % of all requests are lost. A pod takes 20 s in "
    "initialize() and about 2 s more to start. Without a spare pod, the target for the bursts therefore can't "
    "be met. The last rows of the table have a spare pod (`minReplicas: 2`) and include its cost.",
    "peers": "All other autoscalers run behind Halcyon's balancers, which limit the queue and reject requests that would be "
    "late. KEDA 2.21 was also measured once on the same kind of pods behind an unlimited queue, scaling on "
    "queue depth or on requests in flight. In the measurement behind an unlimited queue, KEDA raised the replicas after 13 to 17 s. The violations "
    "on the step were 25 to 27 % at 2.9 x the clairvoyant pod-seconds; on the bursts, 22 to 25 % at 3.2 to 3.4 x. KEDA is "
    "configured as in docs/guides/keda.md. The ScaledObject queries a Prometheus with a scrape interval of "
    "one second for the requests in flight and in the queue, with a target of 8 per replica. If KEDA's HPA "
    "happens to sync while nine requests are in flight before the step, it scales to 2 replicas early, and keeps them for "
    "five minutes.",
}


def text(rows: Sequence[Entry]) -> str:
    """The page."""
    parts = [_HEAD]
    for part, columns in _COLUMNS.items():
        found = [row for row in rows if row["part"] == part]
        if not found:
            continue
        parts += [f"## {_TITLES[part]}", "", _TARGETS[part], "", *_table(columns, found), ""]
        if part in _NOTES:
            parts += [_NOTES[part], ""]
        stand_ins = dict.fromkeys(words for row in found for words in row["stand_ins"])
        if stand_ins:
            parts += ["This measurement differs from production:", ""]
            parts += [f"- {words[0].upper()}{words[1:]}." for words in "; ".join(stand_ins).split("; ")]
            parts += [""]
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
