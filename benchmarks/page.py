"""docs/benchmarks/reaction.md, from the rows of build/bench/reaction.json. Pure but for the write."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "reaction.md"
Entry = dict[str, Any]

_HEAD = """# Reaction: from a step of the load to /scale

This page is written by `make bench-reaction`, which runs all measurements on one machine. The file
build/bench/reaction.json contains the figures on this page in machine-readable form. Reaction time is the time from the
increase in load until a watch on the ModelDeployment receives the higher spec.replicas. The reaction time includes the
network, the agent, the decision and the write to /scale. If a table row is computed from only a few values, the column
p99 contains the largest value. `-` means not measured or not applicable.
"""
_SPEED_TARGET = "The targets for the reaction time are a p50 of at most 3 s and a p99 of at most 6 s"
_TARGETS: dict[str, str] = {
    "one": f"{_SPEED_TARGET}.",
    "fleet": f"{_SPEED_TARGET}. The targets for the operator are at most 1 CPU core and at most 1 GiB of memory.",
    "loop": "The targets are a p99 of at most 5 s for the decision age (the time since a model's last decision), and "
    "at most 100 us per decision.",
    "step": "The first scale-up should happen within 3 s. In the step scenario, the targets are at most 10 % late, rejected or failed "
    "requests, and at most 1.4 times the pod-seconds of a clairvoyant schedule. In the burst scenario, the targets are at most 12 % late, rejected "
    "or failed requests, and at most 2.0 times the pod-seconds of a clairvoyant schedule.",
    "peers": "The runs with other autoscalers use the same pods and the same load as the runs with Halcyon, but no targets are set for these runs.",
    "parity": "In every case, the HPA and the operator should write the same number of replicas within one HPA sync.",
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
    "parity": "In the row that begins with `by the same load`, the two compared models get the same load, but each model has its own planner. The planners of "
    "the two models make their decisions at different moments. When the load falls, the planners of the two compared models keep surplus replicas "
    "for different lengths of time, because they have measured different levels of noise in the load. In one run, one model's planner kept surplus "
    "replicas for 60 s, and the other model's planner kept them for 72 s. The `as decided` columns compare a model's replica count with the "
    "count that the model's own planner chose. In the row that begins with `by a schedule`, the two compared models follow the same schedule, so their planners "
    "make the same decisions.",
    "loop": "The decision age is the time since a model's last decision. The decision age is sampled for all models during the whole run. "
    "The agent of an idle model reports only every 4.5 s, so the p99 decision age is about 4.5 s or more, however fast the decision loop is.",
    "step": "The load rises from 35 to 210 gRPC requests per second, regardless of how fast requests are answered (open loop). The latency "
    "objective is 500 ms, and requests have a deadline of 10 s. Violations are the share of all requests that were late, rejected or failed. The "
    "pod-seconds of a pod are counted from its creation until its removal. In each row, the pod-seconds are divided by the pod-seconds of a "
    "clairvoyant schedule, which knows the load in advance and starts pods before the load rises. Each pod takes about 22 s to start, of which it "
    "spends 20 s in `initialize()`. The first burst exceeds the capacity of the only pod by 149 requests per second. The requests that are lost in "
    "the first 21.5 s of the burst make up 12 % of all requests in the run. Without a spare pod, the target for the burst scenario therefore can't "
    "be met. The rows with `minReplicas: 2` are runs with a spare pod, and their pod-seconds include this pod.",
    "peers": "In the runs with other autoscalers, requests also pass through Halcyon's balancers, which limit the queue and reject requests that "
    "would be late. In another measurement, KEDA 2.21 scaled the same kind of pods by queue depth or by requests in flight, with an unlimited queue "
    "in front of the pods. With an unlimited queue, KEDA scaled up after 13 to 17 s. In the step scenario with an unlimited queue, 25 to 27 % of "
    "KEDA's requests were late, rejected or failed, and KEDA used 2.9 times the pod-seconds of the clairvoyant schedule. In the burst scenario with "
    "an unlimited queue, 22 to 25 % of KEDA's requests were late, rejected or failed, and KEDA used 3.2 to 3.4 times the pod-seconds of the "
    "clairvoyant schedule. KEDA is configured as in docs/guides/keda.md. KEDA's ScaledObject queries Prometheus (scrape interval: one second) for "
    "the number of requests in flight and in the queue, with a target of 8 per replica. If KEDA's HPA happens to sync while nine requests are in "
    "flight before the load step, KEDA scales to 2 replicas early, and keeps the second replica for five minutes.",
}


def text(rows: Sequence[Entry]) -> str:
    """Return the page."""
    parts = [_HEAD]
    for part, columns in _COLUMNS.items():
        part_rows = [row for row in rows if row["part"] == part]
        if not part_rows:
            continue
        parts += [f"## {_TITLES[part]}", "", _TARGETS[part], "", *_table(columns, part_rows), ""]
        if part in _NOTES:
            parts += [_NOTES[part], ""]
        stand_ins = dict.fromkeys(words for row in part_rows for words in row["stand_ins"])
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
