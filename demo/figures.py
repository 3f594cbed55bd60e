"""Measured figures: their keys, their budgets, the table at the end, and build/demo.json."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from demo.models import REPOSITORY
from e2e.load.settings import Report

FILE = REPOSITORY / "build" / "demo.json"
FROM_TESTS = REPOSITORY / "build" / "figures"
"""Folder with the figures that `make test` measures, one file per figure."""
KEYS = (
    "apply_to_first_answer_s",
    "cold_start_s",
    "accuracy",
    "queue_step_to_scale_s",
    "gpu_step_to_scale_s",
    "planned_step_to_scale_s",
    "replicas_max",
    "mean_batch",
    "throughput_batched_rps",
    "throughput_unbatched_rps",
    "requests",
    "failed_requests",
    "rejected_requests",
    "channel_share",
    "operator_rss_mib",
    "writes_at_rest",
    "unit_tests_s",
    "worker_exits",
    "versions",
)
"""Keys that build/demo.json always has. The value is null if the figure was not measured."""

Figures = dict[str, Any]


@dataclass(frozen=True)
class Budget:
    """Limit that a figure must not exceed, or must reach."""

    key: str
    title: str
    limit_text: str
    is_kept: Callable[[Any], bool]


BUDGETS = (
    Budget("apply_to_first_answer_s", "apply to first answered inference", "<= 8 s", lambda value: value <= 8),
    Budget("accuracy", "held-out digits labelled right", ">= 0.95", lambda value: value >= 0.95),
    Budget("batching_gain", "dynamic batching against none, 32 clients", ">= 5.5 x", lambda value: value >= 5.5),
    Budget("queue_step_to_scale_s", "queue step to /scale written", "happens", lambda _: True),
    Budget("gpu_step_to_scale_s", "GPU step to /scale written", "happens", lambda _: True),
    Budget("planned_step_to_scale_s", "planned: queue step to /scale written", "<= 6 s", lambda value: value <= 6),
    Budget("replicas_max", "most replicas", ">= 2", lambda value: value >= 2),
    Budget("failed_requests", "failed requests, of all that were sent", "0", lambda value: value == 0),
    Budget(
        "planned_rejected_share",
        "planned: rejected for the objective, of twice what one replica can do",
        "<= 20 %",
        lambda value: value <= 0.2,
    ),
    Budget(
        "channel_share",
        "shares of 3 pods in one gRPC channel",
        "25 % to 42 % each",
        lambda value: len(value) == 3 and all(0.25 <= share <= 0.42 for share in value),
    ),
    Budget("operator_rss_mib", "operator, resident memory", "< 150 MiB", lambda value: value < 150),
    Budget("agent_rss_mib", "agent, resident memory", "< 48 MiB", lambda value: value < 48),
    Budget("balancer_pod_mib", "balancer pod", "< 80 MiB", lambda value: value < 80),
    Budget("writes_at_rest", "writes at rest, 20 models", "0", lambda value: value == 0),
    Budget("unit_tests_s", "unit tests, seconds", "< 30 s", lambda value: value < 30),
    Budget("worker_exits", "HAProxy worker exits, 500 pods replaced", "0", lambda value: value == 0),
    Budget("dead_backend_out_s", "a dead backend out of the balancer", "<= 2 s", lambda value: value <= 2),
    Budget("goodput_at_3x", "goodput at three times the capacity", ">= 0.9", lambda value: value >= 0.9),
)
_REJECTED = "than its pods can answer within"
"""Words in a balancer's response to a request that can't be answered within `targets.latency`."""
SKIPPED, TUNNELLED = "skipped", "by tunnel"
BY_TUNNEL = frozenset({"apply_to_first_answer_s", "batching_gain"})
"""Figures that are measured through `kubectl port-forward` on a user's own cluster. They are then shown, but not
checked against a budget."""
BY_TESTS = frozenset({"unit_tests_s", "worker_exits", "dead_backend_out_s", "goodput_at_3x"})
"""Figures that `make test` measures. If it has not run yet, their budgets don't count as missed."""


@dataclass(frozen=True)
class Row:
    """Figure with its budget. `ok` is None if the figure was skipped on purpose or can't be judged here."""

    budget: Budget
    value: Any
    ok: bool | None


def rows(
    figures: Figures, *, skipped: frozenset[str] = frozenset(), unjudged: frozenset[str] = frozenset()
) -> list[Row]:
    """Return each budget with its figure. A missing figure that was not skipped on purpose misses its budget."""
    judged = []
    for budget in BUDGETS:
        value = figures.get(budget.key)
        if value is None:
            judged.append(Row(budget, None, None if budget.key in skipped | BY_TESTS else False))
        else:
            judged.append(Row(budget, value, None if budget.key in unjudged else budget.is_kept(value)))
    return judged


def from_tests(folder: Path = FROM_TESTS) -> Figures:
    """Return the figures that the last `make test` in this tree measured, by key; empty if it has not run."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}


def failures(kinds: Mapping[str, int]) -> dict[str, int]:
    """Return how many requests a balancer rejected for the latency objective, and how many others failed."""
    rejected = sum(count for kind, count in kinds.items() if _REJECTED in kind)
    return {"rejected_requests": rejected, "failed_requests": sum(kinds.values()) - rejected}


def outcome_text(report: Report) -> str:
    """Return a text with the numbers of answered, rejected (for the objective), and failed requests of a load."""
    counts = failures(report.failures)
    rejected = f"{counts['rejected_requests']} rejected, " if counts["rejected_requests"] else ""
    return f"{report.answered} answered, {rejected}{counts['failed_requests']} failed"


def table(rows: list[Row]) -> Table:
    """Return the rows as a table for the terminal."""
    terminal_table = Table(title=None, title_justify="left")
    for heading, justify in (("figure", "left"), ("measured", "right"), ("budget", "right"), ("", "left")):
        terminal_table.add_column(heading, justify="right" if justify == "right" else "left")
    for row in rows:
        absent = TUNNELLED if row.value is not None else "make test" if row.budget.key in BY_TESTS else SKIPPED
        verdict = {True: "[green]ok[/]", False: "[bold red]MISSED[/]", None: absent}[row.ok]
        terminal_table.add_row(row.budget.title, figure_text(row.value), row.budget.limit_text, verdict)
    return terminal_table


def figure_text(value: Any) -> str:
    """Format a figure as text."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return " ".join(f"{share:.0%}" for share in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def complete(figures: Figures) -> Figures:
    """Return all `KEYS` in order, with None for figures that were not measured. Additional keys follow."""
    return {key: figures.get(key) for key in KEYS} | {key: value for key, value in figures.items() if key not in KEYS}


def write(figures: Figures, *, file: Path = FILE) -> None:
    """Write the figures to build/demo.json."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(complete(figures), indent=2) + "\n")
