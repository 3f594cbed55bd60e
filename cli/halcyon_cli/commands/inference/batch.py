"""`halcyon batch`: runs a data set through a served model, and lists and controls such batches.

The commands create and change BatchInference objects. Out of scope: the operator's processing of these objects
(`halcyon.batch`).
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from halcyon.api import batch_inference
from halcyon.api.timestamps import epoch_seconds, rfc3339
from halcyon.api.types import API_VERSION, duration_s
from halcyon.api.types import BATCH_KIND as KIND
from halcyon.kube.kinds import BATCH_INFERENCE
from halcyon_cli.arguments.options import Output, OutputForm, check_unused, cluster_options, emit, with_options
from halcyon_cli.commands.outage_notice import OutageNotice
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Target
from halcyon_cli.kube.object_writer import ObjectWriter

Json = Mapping[str, Any]

_ACTIONS = ("follow", "suspend", "resume", "cancel")
_VOLUME = re.compile(r"pvc://([a-z0-9][a-z0-9.-]*)/(.+)")
_BUCKET_OPTIONS = ("credentials", "endpoint", "region")
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

The command shows the progress until the end. Ctrl-C ends the command and not the batch. A
batch that has failed goes on with resume, once its cause is removed. With cancel, what is
written stays. See docs/guides/batch.md.

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
@click.option("--endpoint", metavar="URL", help="Address of the buckets' store. Default: that of the cloud.")
@click.option("--region", metavar="REGION", help="Region of the s3:// buckets. Default: us-east-1.")
@click.option("--name", metavar="NAME", help="Name of the batch. Default: MODEL-batch.")
@click.option(
    "--input-format", type=click.Choice(("Npz", "Jsonl", "Parquet", "Folder")), help="Default: that of the name."
)
@click.option("--output-format", type=click.Choice(("Npz", "Jsonl")), help="Default: Npz for Npz, else Jsonl.")
@click.option("--hooks", metavar="CONFIGMAP", help="ConfigMap with the files of --prepare and --finish.")
@click.option("--prepare", metavar="FILE.py:FUNCTION", help="Function that makes inputs of a row.")
@click.option("--finish", metavar="FILE.py:FUNCTION", help="Function that gets the outputs of a row.")
@click.option("--rows", type=click.IntRange(1, 4096), help="Rows of a request. Default: chosen by their times.")
@click.option("--max-failures", type=click.IntRange(0), help="Rows without a result, at most. Default: 100.")
@click.option("--deadline", metavar="TIME", help="Time, for example 2026-12-01T06:00:00Z, or duration from now, as 6h.")
@click.option("--max-replicas", type=click.IntRange(0, 1000), help="Replicas that may be added for it.")
@click.option("--wake", is_flag=True, help="Start a replica if the model is at 0.")
@click.option("--gentle", is_flag=True, help="Send only so much that users hardly notice.")
@click.option("--workers", type=click.IntRange(1, 64), help="Processes for the functions. Default: 1.")
@click.option("--detach", is_flag=True, help="Return once it is created.")
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


def manifest(model: str, namespace: str, options: Json, *, now: float) -> Json:
    """Return the BatchInference object for these options. `now` is the current time in seconds since the epoch.

    Raises:
        InputError: an option is missing or invalid.
    """
    spec: dict[str, Any] = {
        "modelDeployment": model,
        "input": _place("--input", options["source"], options),
        "output": _place("--output", options["place"], options),
    }
    _check_bucket_options(spec, options)
    for part, option in (("input", "input_format"), ("output", "output_format")):
        if options[option]:
            spec[part]["format"] = options[option]
    hooks = {"configMap": options["hooks"], "prepare": options["prepare"], "finish": options["finish"]}
    if any(hooks.values()):
        if not options["hooks"]:
            raise InputError(
                "--prepare and --finish need --hooks, the ConfigMap with their files; for example kubectl create configmap "
                f"{model}-hooks --from-file=hooks.py, then --hooks {model}-hooks --prepare hooks.py:prepare"
            )
        spec["hooks"] = {name: value for name, value in hooks.items() if value}
    optional_fields = {
        "rowsPerRequest": options["rows"],
        "maxFailures": options["max_failures"],
        "deadline": _deadline(options["deadline"], now),
        "maxReplicas": options["max_replicas"],
        "atZero": "Wake" if options["wake"] else None,
        "gentle": options["gentle"] or None,
        "workers": options["workers"],
    }
    spec |= {name: value for name, value in optional_fields.items() if value is not None}
    try:
        batch_inference.parse(spec)
    except ValueError as error:
        raise InputError(str(error)) from None
    meta = {"name": options["name"] or f"{model}-batch", "namespace": namespace}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec}


def _place(option: str, place: str | None, options: Json) -> dict[str, Any]:
    """Return the field `input` or `output` of the spec for a place, with bucket options if it is in a bucket."""
    example = f"for example {option} pvc://sets/2026/images.npz, where sets is a PersistentVolumeClaim, or {option} s3://sets/images.npz"
    if not place:
        raise InputError(f"{option} is missing; {example}")
    if place.startswith(("s3://", "gs://", "az://")):
        bucket_fields = {
            "credentials": {"secretName": options["credentials"]} if options["credentials"] else None,
            "endpoint": options["endpoint"],
            "region": options["region"] if place.startswith("s3://") else None,
        }
        return {"uri": place.rstrip("/"), **{name: value for name, value in bucket_fields.items() if value}}
    match = _VOLUME.fullmatch(place)
    if match is None:
        raise InputError(
            f"{option} is {place}; it must be pvc://CLAIM/PATH, or s3://, gs:// or az://BUCKET/PATH; {example}"
        )
    return {"persistentVolumeClaim": {"claimName": match[1], "path": match[2].rstrip("/")}}


def _check_bucket_options(spec: Json, options: Json) -> None:
    places = [spec[part].get("uri", "pvc://") for part in ("input", "output")]
    for name in _BUCKET_OPTIONS:
        schemes = ("s3://",) if name == "region" else ("s3://", "gs://", "az://")
        if options[name] and not any(place.startswith(schemes) for place in places):
            raise InputError(
                f"--{name} is only for {', '.join(schemes)}, and neither --input nor --output is there; remove it, or name a bucket, "
                "for example --input s3://sets/images.npz"
            )


def _deadline(text: str | None, now: float) -> str | None:
    if text is None or epoch_seconds(text) is not None:
        return text
    try:
        return rfc3339(now + duration_s(text))
    except ValueError as error:
        raise InputError(
            f"--deadline is {text}, and neither a time as 2026-12-01T06:00:00Z nor a duration: {error}"
        ) from None


def _list(cluster: ObjectWriter, output: Output, *, all_namespaces: bool) -> int:
    batches = cluster.items(BATCH_INFERENCE, all_namespaces=all_namespaces)
    if batches is None:
        raise ClusterError(f"the cluster at {cluster.host} has no CRD {KIND}; upgrade Halcyon: docs/guides/upgrade.md")
    if output.is_objects:
        output.objects(batches)
        return 0
    from halcyon_cli.output import tables  # noqa: PLC0415  # rich takes 0.25 s to import: not for usage errors

    head = ["NAME", "MODEL", "STATUS", "DONE", "FAILURES", "RATE", "ETA"]
    rows = [row(batch) for batch in batches]
    if all_namespaces:
        head.insert(0, "NAMESPACE")
        rows = [[str(batch["metadata"]["namespace"]), *cells] for batch, cells in zip(batches, rows, strict=True)]
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
    """Return the reason and the message of the first condition, and whether the batch has failed."""
    conditions = fields.mappings(fields.mapping(batch.get("status")).get("conditions"))
    condition = conditions[0] if conditions else {}
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
        output.changed(batch, "cancelled: what is written stays")
        return 0
    if action == "resume" and _state(batch)[2]:
        # The Job that has failed is deleted while the batch is suspended.
        _suspend(cluster, name, suspend=True)
        _wait_suspended(cluster, name)
    changed = _suspend(cluster, name, suspend=action == "suspend")
    message = "suspended: rows of unfinished parts are computed again" if action == "suspend" else "resumed"
    output.changed(changed, message, f"halcyon batch {'resume' if action == 'suspend' else 'follow'} {name}")
    return 0


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
    deadline = time.monotonic() + _RESUME_TIMEOUT_S
    while _state(_find(cluster, name))[2]:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the operator doesn't answer: {name} is still failed; see kubectl describe batchinference {name}"
            )
        time.sleep(_POLL_INTERVAL_S)


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
