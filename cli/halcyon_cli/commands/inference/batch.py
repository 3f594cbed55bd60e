"""`halcyon batch`: runs a data set through a served model, and lists and controls such batches.

The commands create and change BatchInference objects. Out of scope: the operator's processing of these objects
(`halcyon.batch`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from halcyon.api.batch_inference import BatchReason
from halcyon.api.types import BATCH_KIND as KIND
from halcyon.kube.kinds import BATCH_INFERENCE
from halcyon_cli.arguments.options import (
    Output,
    OutputForm,
    check_unused,
    cluster_options,
    emit,
    warn,
    with_options,
)
from halcyon_cli.commands.inference.batch_manifest import manifest
from halcyon_cli.commands.outage_notice import OutageNotice
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import batches, client_messages, fields
from halcyon_cli.kube.client import Target
from halcyon_cli.kube.object_writer import ObjectWriter

Json = Mapping[str, Any]

_ACTIONS = ("follow", "suspend", "resume", "cancel")
_POLL_INTERVAL_S = 2.0
_RESUME_TIMEOUT_S = 60.0
_EPILOG = """\
\b
examples:
  halcyon batch digits --input pvc://sets/rows.npz --output pvc://sets/out
  halcyon batch digits --input pvc://s/a.jsonl --output pvc://s/a -o yaml
  halcyon batch digits --input s3://s/a --output s3://s/b --credentials s3
  halcyon batch list -A
  halcyon batch follow digits-batch
  halcyon batch suspend digits-batch
  halcyon batch resume digits-batch
  halcyon batch cancel digits-batch

The command shows the progress of the batch until its end. Ctrl-C ends the command, but not
the batch. To continue a failed batch, remove the cause, then use resume. After cancel,
results that are already written stay. See docs/guides/batch.md.

\b
exit status:
  0  the batch is complete, or the change is made
  1  the batch has failed
  2  nothing done: usage error, no such name, no access, no cluster
"""


def _output_options(command: Any) -> Any:
    """Add the options -o and --no-color. -o has no long form, because --output is the place of the results."""

    def wrapper(form: OutputForm, no_color: bool, **others: Any) -> Any:  # noqa: ARG001  # its tables have no colour
        return command(output=Output(form), **others)

    options = (
        click.option("-o", "form", type=click.Choice(("table", "name", "json", "yaml")), default="table", help="Output format. With yaml or json, a new batch is printed and not created. Default: table."),
        click.option("--no-color", is_flag=True, help="Plain text, which this command always prints."),
    )  # fmt: skip
    return with_options(command, wrapper, options)


@click.command("batch", epilog=_EPILOG)
@click.argument("words", nargs=-1, metavar="MODEL | list | follow|suspend|resume|cancel BATCH")
@click.option(
    "--input",
    "source",
    metavar="PLACE",
    help="Data set, a file or folder: pvc://CLAIM/PATH, or s3://, gs:// or az://BUCKET/PATH.",
)
@click.option("--output", "place", metavar="PLACE", help="Folder for the results, in the same form.")
@click.option("--credentials", metavar="SECRET", help="Secret with the keys of the buckets.")
@click.option("--endpoint", metavar="URL", help="URL of the store that has the buckets. Default: that of the cloud.")
@click.option("--region", metavar="REGION", help="Region of the s3:// buckets. Default: us-east-1.")
@click.option("--name", metavar="NAME", help="Name of the batch. Default: MODEL-batch.")
@click.option(
    "--input-format",
    type=click.Choice(("Npz", "Jsonl", "Parquet", "Folder")),
    help="Format of the data set. Default: by its name.",
)
@click.option(
    "--output-format",
    type=click.Choice(("Npz", "Jsonl")),
    help="Format of the results. Default: Npz if the input is Npz, else Jsonl.",
)
@click.option("--hooks", metavar="CONFIGMAP", help="ConfigMap with the files of --prepare and --finish.")
@click.option("--prepare", metavar="FILE.py:FUNCTION", help="Function that converts a row to inputs.")
@click.option("--finish", metavar="FILE.py:FUNCTION", help="Function that converts the outputs of a row to a result.")
@click.option(
    "--rows", type=click.IntRange(1, 4096), help="Rows in each request. Default: chosen from execution times."
)
@click.option("--max-failures", type=click.IntRange(0), help="Maximum number of rows without a result. Default: 100.")
@click.option(
    "--deadline",
    metavar="TIME",
    help="Time by which the batch should end, for example 2026-12-01T06:00:00Z, or a duration from now, for example 6h.",
)
@click.option(
    "--max-replicas", type=click.IntRange(0, 1000), help="Maximum number of replicas that may be added for the batch."
)
@click.option("--wake", is_flag=True, help="Start a replica if the model is at 0.")
@click.option("--gentle", is_flag=True, help="Send so few requests that the latency of users hardly changes.")
@click.option("--workers", type=click.IntRange(1, 64), help="Number of processes that run the functions. Default: 1.")
@click.option("--detach", is_flag=True, help="Return as soon as the batch is created.")
@click.option("-A", "--all-namespaces", "all_namespaces", is_flag=True, help="With list: all namespaces.")
@cluster_options
@_output_options
def main(words: tuple[str, ...], target: Target, output: Output, *, all_namespaces: bool, **options: Any) -> int:
    """Run a data set through a model beside its users, with one result for each row."""
    is_list, is_action = words == ("list",), len(words) == 2 and words[0] in _ACTIONS
    if is_list or is_action:
        check_unused(options, f"is for a new batch, and {words[0]} makes none; leave it out")
    elif len(words) != 1 or words[0] in _ACTIONS:
        raise click.UsageError("it needs a model, or list, or one of follow, suspend, resume and cancel with a name")
    if not is_list:
        check_unused(("all_namespaces",), "is for halcyon batch list; name the namespace with -n")
    if is_action and words[0] == "follow":
        check_unused(("form",), "prints an object, and follow the progress; leave it out")
    if not (is_list or is_action):
        manifest(words[0], "", options, now=time.time())  # errors of the options before those of the cluster
    cluster = ObjectWriter(target)
    if is_list:
        return _list(cluster, output, all_namespaces=all_namespaces)
    if is_action:
        return _act(cluster, words[0], words[1], output)
    body = manifest(words[0], cluster.namespace, options, now=time.time())
    if output.is_data:
        output.data(body)
        return 0
    cluster.model(words[0])
    created = cluster.create(BATCH_INFERENCE, dict(body))
    name = str(body["metadata"]["name"])
    if created is None:
        raise InputError(
            f"{KIND} {name} exists in namespace {cluster.namespace}; follow it with halcyon batch follow {name}, or choose another --name"
        )
    output.changed(created, "created", f"halcyon batch follow {name}" if options["detach"] else "")
    return 0 if options["detach"] or output.form == "name" else _follow(cluster, name)


def _list(cluster: ObjectWriter, output: Output, *, all_namespaces: bool) -> int:
    stored = cluster.items(BATCH_INFERENCE, all_namespaces=all_namespaces)
    if stored is None:
        raise ClusterError(client_messages.no_kind(cluster.host, KIND))
    if output.is_objects:
        output.objects(stored)
        return 0
    if not stored:
        place = "the cluster" if all_namespaces else f"namespace {cluster.namespace}"
        emit(f"no {KIND}s in {place}; for a new one: halcyon batch MODEL --input PLACE --output PLACE")
        return 0
    from halcyon_cli.output import tables  # noqa: PLC0415  # rich takes 0.25 s to import: not for usage errors

    head = ["NAME", "MODEL", "STATUS", "DONE", "FAILURES", "RATE", "ETA"]
    rows = [row(batch) for batch in stored]
    if all_namespaces:
        head.insert(0, "NAMESPACE")
        rows = [[str(batch["metadata"]["namespace"]), *cells] for batch, cells in zip(stored, rows, strict=True)]
    emit(tables.lines(tables.table_page(head, rows), width=output.width))
    return 0


def row(batch: Json) -> list[str]:
    """Return the table cells of a BatchInference; `-` for unknown values."""
    status = fields.mapping(batch.get("status"))
    rows = fields.mapping(status.get("rows"))
    cells = (
        fields.mapping(batch.get("metadata")).get("name"),
        fields.mapping(batch.get("spec")).get("modelDeployment"),
        _state(batch)[0],
        status.get("progress"),
        rows.get("failed"),
        status.get("rate"),
        status.get("eta"),
    )
    return ["-" if cell is None else str(cell) for cell in cells]


def _state(batch: Json) -> tuple[str, str, bool]:
    """Return the reason and the message of the condition that decides, and whether the batch has failed."""
    condition = batches.deciding_condition(batch)
    return (
        str(condition.get("reason") or "Pending"),
        str(condition.get("message") or ""),
        condition.get("type") == "Failed",
    )


def _act(cluster: ObjectWriter, action: str, name: str, output: Output) -> int:
    batch = _find(cluster, name)
    if action == "follow":
        return _follow(cluster, name)
    if action in {"suspend", "resume"} and _state(batch)[0] == "Completed":
        raise InputError(f"{KIND} {name} is complete, so there is nothing to {action}; a new one needs another --name")
    if action == "cancel":
        cluster.delete(BATCH_INFERENCE, name, str(fields.mapping(batch.get("metadata")).get("uid")))
        output.changed(batch, "cancelled: results that are already written stay")
        return 0
    if action == "resume" and _state(batch)[2]:
        changed = _resume_failed(cluster, name, batch)
    else:
        changed = _suspend(cluster, name, suspend=action == "suspend")
    message = (
        "suspended: after a resume, rows of unfinished parts are computed again" if action == "suspend" else "resumed"
    )
    output.changed(changed, message, f"halcyon batch {'resume' if action == 'suspend' else 'follow'} {name}")
    return 0


def _resume_failed(cluster: ObjectWriter, name: str, batch: Json) -> Json:
    """Suspend a failed batch until the operator has deleted its Job, then resume it, and return the batch.

    Raises:
        ClusterError: the batch is still failed at the time limit, or was deleted, or a request failed.
        InputError: the spec must be changed first.
    """
    reason, message, _ = _state(batch)
    if reason == BatchReason.INVALID:
        raise InputError(
            f"the spec of {KIND} {name} is invalid: {message}; correct it with kubectl edit batchinference {name} -n "
            f"{cluster.namespace}, and the batch goes on"
        )
    _suspend(cluster, name, suspend=True)
    try:
        _wait_suspended(cluster, name)
        return _suspend(cluster, name, suspend=False)
    except (ClusterError, KeyboardInterrupt) as error:
        hint = f"{name} may be suspended now; repeat halcyon batch resume {name}"
        if isinstance(error, ClusterError):
            raise ClusterError(f"{error}; {hint}") from None
        warn("batch", hint)
        raise


def _find(cluster: ObjectWriter, name: str) -> Json:
    batch = cluster.find(BATCH_INFERENCE, name)
    if batch is None:
        raise _unknown_batch(cluster, name)
    return batch


def _unknown_batch(cluster: ObjectWriter, name: str) -> ClusterError:
    return ClusterError(f"no {KIND} {name} in namespace {cluster.namespace}; list them with halcyon batch list")


def _suspend(cluster: ObjectWriter, name: str, *, suspend: bool) -> Json:
    changed = cluster.change(BATCH_INFERENCE, name, {"spec": {"suspend": suspend}})
    if changed is None:
        raise ClusterError(f"{KIND} {name} was deleted; list the others with halcyon batch list")
    return changed


def _wait_suspended(cluster: ObjectWriter, name: str) -> None:
    """Wait until a suspended batch is no longer failed. A failed request is repeated until the time limit.

    Raises:
        ClusterError: the batch is still failed at the time limit, or was deleted.
    """
    deadline, batch, outage = time.monotonic() + _RESUME_TIMEOUT_S, _find(cluster, name), OutageNotice("batch")
    while _state(batch)[2]:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the operator has not deleted the failed Job of {name} within {_RESUME_TIMEOUT_S:.0f} s; for the reason: "
                f"kubectl describe batchinference {name} -n {cluster.namespace}"
            )
        time.sleep(_POLL_INTERVAL_S)
        batch = _next(cluster, name, batch, outage)


def _follow(cluster: ObjectWriter, name: str) -> int:
    """Print each change of the progress until the batch ends, and return the exit status.

    A failed request counts as no change, because the API server may restart during a long batch. A long outage is
    reported on stderr.

    Raises:
        ClusterError: the batch was deleted, or the first request failed.
    """
    last_line: Sequence[str] = ()
    batch, outage = _find(cluster, name), OutageNotice("batch")
    while True:
        line = _line(batch)
        if line != last_line:
            print("  ".join(line), file=sys.stderr)
            last_line = line
        reason, message, is_failed = _state(batch)
        if is_failed:
            print(f"halcyon batch: {name} has failed ({reason}): {message}", file=sys.stderr)
            return 1
        if reason == "Completed":
            emit(f"{name}: {message}")
            return 0
        time.sleep(_POLL_INTERVAL_S)
        batch = _next(cluster, name, batch, outage)


def _next(cluster: ObjectWriter, name: str, last: Json, outage: OutageNotice) -> Json:
    """Return the current state of a batch, or the last known state if the request fails."""
    try:
        batch = cluster.find(BATCH_INFERENCE, name)
    except ClusterError as error:
        outage.request_failed(error)
        return last
    outage.request_succeeded()
    if batch is None:
        raise _unknown_batch(cluster, name)
    return batch


def _line(batch: Json) -> list[str]:
    status, (reason, message, _) = fields.mapping(batch.get("status")), _state(batch)
    rows = fields.mapping(status.get("rows"))
    cells = [reason]
    if status.get("progress"):
        cells.append(f"{status['progress']} rows")
    if rows.get("failed"):
        cells.append(f"{rows['failed']} failed")
    if status.get("rate"):
        cells.append(f"{status['rate']} rows/s")
    if status.get("eta"):
        cells.append(f"until {status['eta']}")
    late_conditions = [
        condition
        for condition in fields.mappings(status.get("conditions"))
        if (condition.get("type"), condition.get("status")) == ("OnTime", "False")
    ]
    cells += [str(condition.get("message")) for condition in late_conditions]
    return cells if reason in {"Running", "Completed"} else [*cells, message]
