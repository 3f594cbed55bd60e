"""`halcyon refresh NAME|--all`: replaces model pods by pods with the template that the running operator renders.

The command sets an annotation that contains the revision's name, so it affects only that revision. Out of scope: the
effect of the annotation (`control.rollout.refresh`), and the detection of outdated models: the operator sets the
condition RuntimeOutdated, which this command reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import click

from halcyon.control.rollout.refresh import REFRESH
from halcyon_cli.arguments.options import (
    DURATION,
    Output,
    check_unused,
    cluster_options,
    emit,
    name_argument,
    output_options,
    selector_option,
    warn,
)
from halcyon_cli.commands.outage_notice import OutageNotice
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster, NoSuchModelError, Target

POLL_INTERVAL_S = 1.0
MODEL_TIMEOUT_S = 1800.0
"""Default time limit for the rollout of one model, in seconds."""
Json = Mapping[str, Any]
State = Literal["waiting", "served", "stalled"]
_EPILOG = """\
\b
examples:
  halcyon refresh resnet50 -n team
  halcyon refresh --all -A --dry-run
  halcyon refresh --all -n team

An upgrade of Halcyon restarts no model pods: they keep the template that was rendered for them. Models with an older template have the
condition RuntimeOutdated, which names the differences. A refreshed model rolls out according to its spec.rollout, and rolls back on failure. With
--all, models are refreshed one at a time, each after the previous one serves its new template. The first failure stops the command. With
kubectl, for one model: kubectl annotate --overwrite mdep resnet50 serving.halcyon.dev/refresh=REVISION, where REVISION is status.revision.target. See
docs/guides/upgrade.md.

With -o json or yaml, the output is a list with the result of each model: outdated (--dry-run), started, served, waiting (timed out), stalled or
skipped (not refreshed, because an earlier one failed or it was deleted).

\b
exit status:
  0  done, or nothing to do
  1  a refreshed model did not reach its new template, or one after the first
     couldn't be refreshed
  2  nothing done: no such name, no access, no cluster
"""


@click.command("refresh", epilog=_EPILOG)
@name_argument(required=False)
@click.option("--all", "all_models", is_flag=True, help="All models in the namespace that run an older template.")
@click.option("-A", "--all-namespaces", "all_namespaces", is_flag=True, help="With --all: models in all namespaces.")
@selector_option
@click.option("--dry-run", is_flag=True, help="List the models to refresh and their differences; change nothing.")
@click.option("--within", "within_s", type=DURATION, default=MODEL_TIMEOUT_S, metavar="TIME", help="With --all: timeout for each model. Default: 30m.")  # fmt: skip
@cluster_options
@output_options("table", "json", "yaml")
def main(  # noqa: PLR0917  # click passes them by keyword
    name: str | None, all_models: bool, all_namespaces: bool, selector: str, dry_run: bool, within_s: float, target: Target, output: Output
) -> int:  # fmt: skip
    """Roll model pods to the pod template that the running operator renders."""
    if name is not None and all_models:
        raise InputError(f"--all is for all models, and {name} names one; omit one of them")
    if name is None and not all_models:
        raise InputError("give a name or --all; for example halcyon refresh resnet50")
    if selector and not all_models:
        raise InputError(f"-l needs --all, and {name} names one model; omit -l")
    if all_namespaces and not all_models:
        raise InputError(f"-A needs --all, and {name} is one model; omit -A, and give its namespace with -n")
    if not all_models:
        check_unused(
            ("within_s",), f"limits the wait of --all; wait for one model with halcyon status {name} -w --for 30m"
        )
    cluster = Cluster(target)
    models = (
        [cluster.model(name)] if name is not None else cluster.models(all_namespaces=all_namespaces, selector=selector)
    )
    outdated = [outdated_model for outdated_model in map(_outdated, models) if outdated_model is not None]
    results = _Results(output)
    status = 0
    if not outdated:
        results.print_line(_nothing_to_do(name, len(models)))
    elif dry_run:
        for outdated_model in outdated:
            results.add(
                outdated_model,
                "outdated",
                f"{outdated_model.namespace}/{outdated_model.name}: {outdated_model.message}",
            )
    elif name is not None:
        _annotate(cluster, outdated[0])
        text = f"{name} rolls out with its new template; watch it with halcyon status {name} -w"
        results.add(outdated[0], "started", text)
    else:
        status = _refresh_in_sequence(cluster, outdated, within_s, results)
    results.finish()
    return status


@dataclass(frozen=True)
class OutdatedModel:
    """Model whose pods have an older pod template than the one that the operator renders."""

    namespace: str
    name: str
    revision: str
    message: str


class _Results:
    """Results of a run of the command.

    Text output shows one line per model immediately. JSON and YAML show one list at the end.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._rows: list[dict[str, str]] = []

    def print_line(self, text: str) -> None:
        """Print a line, unless the output is JSON or YAML."""
        if not self._output.is_data:
            emit(text)

    def add(self, model: OutdatedModel, result: str, text: str = "") -> None:
        """Record the result for a model; `text` is its line in text output."""
        self._rows.append({**asdict(model), "result": result})
        if text:
            self.print_line(text)

    def finish(self) -> None:
        """Print the list of results if the output is JSON or YAML."""
        if self._output.is_data:
            self._output.data(self._rows)


def _outdated(model: Json) -> OutdatedModel | None:
    """Return an OutdatedModel if the model's condition RuntimeOutdated is True, else None."""
    meta, status = fields.mapping(model.get("metadata")), fields.mapping(model.get("status"))
    revision = fields.text(fields.mapping(status.get("revision")).get("target"))
    for condition in fields.mappings(status.get("conditions")):
        if condition.get("type") == "RuntimeOutdated" and condition.get("status") == "True" and revision:
            message = fields.text(condition.get("message")) or ""
            return OutdatedModel(str(meta.get("namespace")), str(meta.get("name")), revision, message)
    return None


def _nothing_to_do(name: str | None, count: int) -> str:
    if name is not None:
        return f"{name} runs the current template; nothing to do"
    return f"none of {count} models runs an older template; nothing to do"


def _annotate(cluster: Cluster, outdated_model: OutdatedModel) -> None:
    cluster.in_namespace(outdated_model.namespace).annotate(outdated_model.name, {REFRESH: outdated_model.revision})


def _refresh_in_sequence(cluster: Cluster, outdated: list[OutdatedModel], within_s: float, results: _Results) -> int:
    """Refresh one model after the other. Parallel rollouts would need spare capacity for all models at once.

    Raises:
        ClusterError: the first model can't be changed, so nothing was done.
    """
    outage = OutageNotice("refresh")
    for number, outdated_model in enumerate(outdated, 1):
        progress = f"{number} of {len(outdated)}: {outdated_model.namespace}/{outdated_model.name}"
        try:
            _annotate(cluster, outdated_model)
            outcome = wait(partial(_state, cluster, outdated_model, outage), within_s)
        except NoSuchModelError:
            results.add(outdated_model, "skipped", f"{progress} was deleted")
            continue
        except ClusterError as error:
            if number == 1:
                raise
            remaining = len(outdated) - number + 1
            warn(cluster.target.command, f"{progress} can't be refreshed: {error}. {remaining} not refreshed")
            for other in outdated[number - 1 :]:
                results.add(other, "skipped")
            return 1
        if outcome != "served":
            remaining = len(outdated) - number
            why = f"does not serve its new template within {within_s:.0f} s" if outcome == "waiting" else "is stalled"
            reason = f"for the reason: halcyon get {outdated_model.name} -n {outdated_model.namespace}"
            results.add(outdated_model, outcome, f"{progress} {why}; {reason}. {remaining} not refreshed")
            for other in outdated[number:]:
                results.add(other, "skipped")
            return 1
        results.add(outdated_model, outcome, f"{progress} serves its new template")
    return 0


def _state(cluster: Cluster, outdated_model: OutdatedModel, outage: OutageNotice) -> State:
    """Return the state of a refresh. It is waiting if the request fails, so that the caller polls again.

    Raises:
        NoSuchModelError: the model was deleted.
    """
    try:
        model = cluster.in_namespace(outdated_model.namespace).model(outdated_model.name)
    except NoSuchModelError:
        raise
    except ClusterError as error:
        outage.request_failed(error)
        return "waiting"
    outage.request_succeeded()
    return rollout_state(model, outdated_model.revision)


def wait(
    state: Callable[[], State],
    within_s: float,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> State:
    """Poll the state of a rollout until it isn't waiting or the time limit is reached; return the last state."""
    deadline = clock() + within_s
    while (current := state()) == "waiting" and clock() < deadline:
        pause(POLL_INTERVAL_S)
    return current


# new target revision   stalled   target serves, rollout complete   state
# no                    -         -                                 waiting: the operator hasn't observed it yet
# yes                   yes       -                                 stalled
# yes                   no        no                                waiting
# yes                   no        yes                               served
def rollout_state(model: Json, before: str) -> State:
    """Return the state of a refresh. `before` is the model's target revision before the refresh."""
    status = fields.mapping(model.get("status"))
    revision = fields.mapping(status.get("revision"))
    conditions = {str(c.get("type")): c.get("status") for c in fields.mappings(status.get("conditions"))}
    if revision.get("target") in {None, before}:
        return "waiting"
    if conditions.get("Stalled") == "True":
        return "stalled"
    is_complete = fields.mapping(status.get("rollout")).get("phase") == "Complete"
    return "served" if is_complete and revision.get("current") == revision.get("target") else "waiting"
