"""Page with the table of results.

It also shows the cells in which a peer beats Halcyon, pictures, and the planner's constants. Out of scope: the runs
(`table`), the comparison of points (`statistics`).
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import halcyon
from halcyon_simulator.benchmark import ablation_section, page_text, plot, statistics
from halcyon_simulator.benchmark.scenarios import LAWS, scenario
from halcyon_simulator.benchmark.statistics import Cell, PolicyPoint
from halcyon_simulator.engine.run import simulate
from halcyon_simulator.policies import peers
from halcyon_simulator.policies.registry import BALANCED, HALCYON, OWN, parsed

BASELINES = frozenset({"static", "rate", "sketch"})
"""Policies that run together with the peers but that no product uses. One of them, `static`, knows the peak of the
load."""
TARGETS: Mapping[tuple[str, float], tuple[float, float]] = {
    ("S1", 60.0): (6.2, 1.40),
    ("S1", 180.0): (17.5, 1.80),
    ("S2", 60.0): (0.5, 1.25),
    ("S2", 180.0): (3.5, 1.50),
    ("S3", 60.0): (5.0, 2.0),
    ("S4", 60.0): (0.1, 1.10),
    ("S4", 180.0): (0.1, 1.15),
    ("S5", 60.0): (0.1, 1.08),
    ("S5", 180.0): (0.1, 1.15),
}
"""Targets of Halcyon, by (scenario, start delay). Each is (violations in percent, GPU time divided by that of the
clairvoyant schedule). They were set with the fluid model, before this simulator existed."""
_DRAWN = ("S1", "S2", "S3")
"""Scenarios for which the page has a plot of a run over time. The run is the one with the first seed."""
_COMPARED = ("kpa", "hpa")
_GRID = 100
"""Minimum number of settings in a full grid of a policy's knobs. Scenarios without a grid of their own use fewer
settings."""
_WORDS = {
    "win": "**win**",
    "front": "on the front",
    "level": "level",
    "behind": "behind",
}


def write(points: Mapping[Cell, Sequence[PolicyPoint]], wrong: Mapping[str, int], path: Path) -> None:
    """Write the page, and write its pictures to the same folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    compared = {
        cell: cell_points
        for cell, cell_points in points.items()
        if cell.family != "S9" and _own(cell_points) and _peers(cell_points)
    }
    parts = [
        page_text.HEAD,
        *_summary(compared),
        *_everywhere(compared),
        *_behind(compared),
        *_targets(points),
        *_lies(points, wrong),
        *_defaults(compared),
    ]
    parts += [*ablation_section.existing_lines(path), *_pictures(compared, path), *_constants()]
    path.write_text("\n".join(parts).rstrip() + "\n")


def _own(points: Sequence[PolicyPoint], name: str = HALCYON) -> PolicyPoint | None:
    return next((point for point in points if point.policy == name and point.outcomes), None)


def _kind(point: PolicyPoint) -> str:
    return point.policy.partition(":")[0]


def _peers(points: Sequence[PolicyPoint]) -> list[PolicyPoint]:
    return [point for point in points if _kind(point) not in OWN | BASELINES and point.outcomes]


def figures(point: PolicyPoint) -> str:
    """Return violations and GPU time in the format of the page, for example `6.63 % at 1.04`."""
    return f"{point.violations_pct:.2f} % at {point.gpu_ratio:.2f}"


def pace(point: PolicyPoint) -> tuple[str, str]:
    """Return changes of direction per hour and the p99 in milliseconds, in the format of the page."""
    turns, p99 = point.mean("direction_changes_per_h"), point.mean("p99_ms")
    return (
        "-" if turns is None else f"{turns:.1f}",
        "-" if p99 is None or not math.isfinite(p99) else f"{p99:.0f}",
    )


def _rows(head: str, rows: Sequence[Sequence[str]]) -> list[str]:
    columns = head.split("|")
    return [f"|{head}|", "|" + "|".join("---" for _ in columns) + "|", *(f"| {' | '.join(row)} |" for row in rows), ""]


def _cell_columns(cell: Cell) -> list[str]:
    return [cell.scenario, cell.law, f"{cell.start_s:g}"]


def _summary(points: Mapping[Cell, Sequence[PolicyPoint]]) -> list[str]:
    rows, all_verdicts = [], []
    for cell, cell_points in points.items():
        own, peer_points = _own(cell_points), _peers(cell_points)
        if own is None:
            continue
        nearest, installed = statistics.nearest(own, peer_points), _own(cell_points, BALANCED)
        verdicts = [
            statistics.standing(own, peer_points),
            "-" if installed is None else statistics.standing(installed, peer_points),
        ]
        all_verdicts.append(verdicts)
        rows.append(
            [
                *_cell_columns(cell),
                figures(own),
                *pace(own),
                f"{figures(nearest)} (`{nearest.policy}`)",
                _WORDS[verdicts[0]],
                "-" if installed is None else figures(installed),
                _WORDS.get(verdicts[1], "-"),
                str(len(own.outcomes)),
            ]
        )
    head = (
        " scenario | law | start, s | planner alone | changes of direction per h | p99, ms | nearest peer | the planner is "
        "| as installed | which is | seeds "
    )
    return ["## Result", "", *_totals(all_verdicts), *_rows(head, rows)]


def _totals(all_verdicts: Sequence[Sequence[str]]) -> list[str]:
    """Return a table with the number of cells for each verdict."""
    if not all_verdicts:
        return []
    rows = [
        [name, *(str(column.count(verdict)) for verdict in _WORDS), str(len(column))]
        for name, column in zip(
            ("the planner alone", "Halcyon as installed"), zip(*all_verdicts, strict=True), strict=True
        )
        if any(verdict in _WORDS for verdict in column)
    ]
    return _rows(f" verdicts on | {' | '.join(_WORDS.values())} | rows of the next table ", rows)


def _everywhere(points: Mapping[Cell, Sequence[PolicyPoint]]) -> list[str]:
    """Return lines that compare policies with a single setting for all loads.

    The knobs of peers are set before the load is known, so each of their settings is scored over all loads.
    """
    parts = []
    for law in dict.fromkeys(cell.law for cell in points):
        # Without any grid (S5, S11), settings can't be compared across scenarios.
        selected = {
            cell: cell_points
            for cell, cell_points in points.items()
            if cell.law == law and sum(":" in point.policy for point in cell_points) >= _GRID
        }
        results = statistics.overall(selected) if selected else []
        own = [result for result in results if result.policy in {HALCYON, BALANCED}]
        peer_results = [result for result in results if result.policy.partition(":")[0] not in OWN | BASELINES]
        if not own or not peer_results:
            continue
        rows = [
            [f"`{result.policy}`", f"{result.violations_pct:.2f} %", f"{result.gpu_ratio:.2f}"]
            for result in (*own, *statistics.front(peer_results))
        ]
        text = (
            f"With the {_service_time(law)}, {len(peer_results)} settings of the autoscalers other than Halcyon were simulated in total, each with "
            f"{len(selected)} combinations of a scenario and a start time. The next table lists Halcyon and the Pareto-optimal settings of the other "
            "autoscalers. Among the settings of the other autoscalers, a setting is Pareto-optimal if no other setting is better in both "
            "violations and GPU time."
        )
        parts += [text, "", *_rows(" policy | violations, mean | GPU time over clairvoyant, geometric mean ", rows)]
    if not parts:
        return []
    text = (
        "In the result table above, the settings of the autoscalers other than Halcyon are chosen with hindsight. The table contains the "
        "setting nearest to Halcyon for each combination of a scenario, a service time model (L1 or L2) and a start time. In practice, the settings "
        "of an autoscaler are chosen once, before the load is known. This section therefore evaluates each setting over all combinations of a scenario "
        "and a start time of the pods, with one random seed. The scenarios S5 and S11 are left out of this comparison, because only a few settings "
        "of the other autoscalers were simulated in these scenarios."
    )
    return ["## One setting for every load", "", text, "", *parts]


def _behind(points: Mapping[Cell, Sequence[PolicyPoint]]) -> list[str]:
    rows = []
    for cell, cell_points in points.items():
        own = _own(cell_points)
        if own is None:
            continue
        ahead = [
            p for p in _peers(cell_points) if p.violations_pct <= own.violations_pct and p.gpu_ratio <= own.gpu_ratio
        ]
        if ahead:
            named = ", ".join(
                f"`{p.policy}` {figures(p)}{' (sure)' if statistics.beats(p, own) else ''}"
                for p in statistics.front(ahead)
            )
            rows.append([*_cell_columns(cell), figures(own), named])
    title = ["## Where Halcyon is not on the front", ""]
    if not rows:
        return [*title, "Nowhere in these runs: no peer's point has both figures as good or better.", ""]
    text = (
        "The next table lists the settings with which another autoscaler did at least as well as `halcyon` (Halcyon's planner without Halcyon's "
        "balancer) in both mean violations and mean GPU time. In this table, (sure) marks a setting that is better than Halcyon's planner with 95 "
        "% confidence."
    )
    return [*title, text, "", *_rows(" scenario | law | start, s | Halcyon | better ", rows)]


def _targets(points: Mapping[Cell, Sequence[PolicyPoint]]) -> list[str]:
    rows = []
    for cell, cell_points in points.items():
        target, own = TARGETS.get((cell.scenario, cell.start_s)), _own(cell_points)
        if target is None or own is None or cell.law != "L1":
            continue
        floor, installed = own.mean("reactive_floor_pct"), _own(cell_points, BALANCED)
        rows.append(
            [
                *_cell_columns(cell),
                f"{target[0]:g} % at {target[1]:.2f}",
                "-" if installed is None else f"{figures(installed)}: {_target_text(installed, target)}",
                f"{figures(own)}: {_target_text(own, target)}",
                "-" if floor is None else f"{floor:.2f} %",
            ]
        )
    if not rows:
        return []
    text = (
        "The first targets for Halcyon were set before this simulator existed, with the help of a fluid model that ignores batches. For a pod at "
        "full load, the simulator predicts worse results than a fluid model, which ignores batches. The reactive floor is the share of requests "
        "that no autoscaler can serve in time without foresight: the requests that exceed the capacity of the existing pods while the first "
        "additional pod starts."
    )
    head = " scenario | law | start, s | target | `halcyon+balancer` | `halcyon` | reactive floor "
    return ["## The first targets", "", text, "", *_rows(head, rows)]


def _target_text(point: PolicyPoint, target: tuple[float, float]) -> str:
    is_met = ("violations", point.violations_pct <= target[0]), ("GPU time", point.gpu_ratio <= target[1])
    missed = " and ".join(name for name, good in is_met if not good)
    return f"missed: {missed}" if missed else "met"


def _service_time(law: str) -> str:
    """Return a phrase with the name of a service time model and the time that it gives for a batch of b requests."""
    service = LAWS[law].service
    by_request = f" + {service.a_s * 1000:g} b" if service.a_s else ""
    return f"service time model {law} (S(b) = {service.t0_s * 1000:g}{by_request} ms)"


def _lies(points: Mapping[Cell, Sequence[PolicyPoint]], wrong: Mapping[str, int]) -> list[str]:
    cases = [cell for cell in points if cell.family == "S9"]
    if not cases:
        return []
    rows = []
    for policy in wrong:
        own = [point for cell in cases for point in points[cell] if point.policy == policy and point.outcomes]
        turns = [point.mean("direction_changes_per_h") or 0.0 for point in own]
        late = [point.violations_pct for point in own]
        rows.append([f"`{policy}`", str(wrong[policy]), f"{max(late):.2f} %", f"{max(turns):.1f}"])
    laws = " and ".join(f"{n} with the {_service_time(law)}" for law, n in Counter(cell.law for cell in cases).items())
    text = (
        f"Scenario S9 consists of {len(cases)} cases, {laws}. In each case of scenario S9, the signals are noisy, partly missing, frozen or absent "
        "while the load is steady, rises or falls. An autoscaler's decision counts as wrong if it removes replicas while no signal is available. "
        "An autoscaler's decision also counts as wrong if the remaining replicas are too few for the load of the last minute, even with full "
        "batches."
    )
    head = " policy | wrong scalings | max violations | max changes of direction per h "
    return ["## Wrong signals (S9)", "", text, "", *_rows(head, rows)]


def _defaults(points: Mapping[Cell, Sequence[PolicyPoint]]) -> list[str]:
    """Return lines with the results of every policy at its defaults, in one table for each law and start delay."""
    parts = [
        "## All policies at their defaults",
        "",
        "Each cell shows the violations and, after `at`, the GPU time divided by the GPU time of a schedule that knows all arrivals in advance.",
        "",
    ]
    for law, start_s in dict.fromkeys((cell.law, cell.start_s) for cell in points):
        selected = {
            cell: cell_points for cell, cell_points in points.items() if (cell.law, cell.start_s) == (law, start_s)
        }
        names = dict.fromkeys(
            point.policy for cell_points in selected.values() for point in cell_points if ":" not in point.policy
        )
        rows = []
        for name in names:
            defaults = [
                next((p for p in cell_points if p.policy == name and p.outcomes), None)
                for cell_points in selected.values()
            ]
            rows.append([f"`{name}`", *("-" if point is None else figures(point) for point in defaults)])
        head = " policy | " + " | ".join(cell.scenario for cell in selected) + " "
        parts += [f"### Law {law}, start {start_s:g} s", "", *_rows(head, rows)]
    return parts


def _pictures(points: Mapping[Cell, Sequence[PolicyPoint]], path: Path) -> Iterator[str]:
    yield "## Pictures"
    yield ""
    for law, start_s in dict.fromkeys((cell.law, cell.start_s) for cell in points):
        by_scenario = {
            cell.scenario: [point for point in cell_points if point.outcomes]
            for cell, cell_points in points.items()
            if (cell.law, cell.start_s) == (law, start_s)
        }
        name = f"{path.stem}-{law}-{start_s:g}s.svg"
        plot.fronts(by_scenario, path.parent / name)
        yield (
            f"The next chart plots violations against GPU time, with the {_service_time(law)} and pods that take {start_s:g} s to start. In the "
            "chart, a line connects the Pareto-optimal settings of the autoscalers other than Halcyon. Among the settings of the other "
            "autoscalers, a setting is Pareto-optimal if no other setting is better in both violations and GPU time.\n"
        )
        yield f"![violations against GPU time, law {law}, start {start_s:g} s]({name})\n"
    for cell in points:
        if cell.scenario in _DRAWN and cell.law == "L1" and cell.start_s == 60.0:
            case = scenario(cell.scenario, law=LAWS[cell.law], start_s=cell.start_s, seed=1)
            runs = {
                name: simulate(case, parsed(name).build(case))
                for name in (HALCYON, *_COMPARED)
                if name == HALCYON or name in peers.PEERS
            }
            name = f"{path.stem}-{cell.scenario}.svg"
            plot.timeline(case, runs, path.parent / name)
            yield f"![{cell.scenario} over time]({name})\n"


def _constants() -> list[str]:
    """Return lines with the constants in the planner's modules and their docstrings."""
    folder = Path(halcyon.__file__).parent / "scaling" / "planner"
    rows = []
    for source in sorted(folder.rglob("*.py")):
        body = ast.parse(source.read_text()).body
        for node, after in zip(body, [*body[1:], None], strict=True):
            has_text = (
                isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            )
            why = " ".join(str(after.value.value).split()) if has_text else "-"  # type: ignore[union-attr]  # as has_text checks
            rows += [
                [f"`{source.stem}.{name}`", f"`{value}`", why.replace("|", "\\|")] for name, value in _set_by(node)
            ]
    if not rows:
        return []
    text = (
        "The last table on this page is generated from the code, and lists the planner's constants and the reason for each value. None of the planner's "
        "constants was fitted to a single scenario, but some were chosen by experiment. The next table lists all simulation runs that were used to "
        "choose the planner's constants, and the decision in docs/decisions that describes each choice."
    )
    head = " constants for | chosen on | law | seeds | decision "
    return [
        "## The planner's constants",
        "",
        text,
        "",
        *_rows(head, page_text.CHOSEN),
        *_rows(" constant | value | why ", rows),
    ]


def _set_by(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """Return (name, value) for each constant that a statement defines.

    A constant has an upper-case name, and its value is a number or a tuple of numbers. The statement `A, B = 1, 2`
    defines two constants.
    """
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target, value = node.target, node.value
    else:
        return
    pairs: list[tuple[ast.expr, ast.expr]] = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(target.elts, value.elts, strict=True))
    for name_node, value_node in pairs:
        numbers = value_node.elts if isinstance(value_node, ast.Tuple) else [value_node]
        if isinstance(name_node, ast.Name) and name_node.id.isupper() and all(map(_number, numbers)):
            yield name_node.id, ast.unparse(value_node)


def _number(node: ast.expr) -> bool:
    """Return whether an expression consists only of numbers and names."""
    constants = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return isinstance(node, (ast.Constant, ast.BinOp, ast.UnaryOp)) and all(
        isinstance(value, (int, float)) for value in constants
    )
