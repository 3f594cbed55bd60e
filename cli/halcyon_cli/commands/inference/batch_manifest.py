"""The BatchInference for the options of `halcyon batch`. Pure.

Out of scope: the options themselves, and what is done with the object (`batch`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from halcyon.api.spec.parse import parse_batch
from halcyon.api.timestamps import epoch_seconds, is_date_time, rfc3339
from halcyon.api.types import API_VERSION, NAME_PATTERN, duration_s
from halcyon.api.types import BATCH_KIND as KIND
from halcyon_cli.errors import InputError

Json = Mapping[str, Any]
_VOLUME = re.compile(r"pvc://([a-z0-9][a-z0-9.-]*)/(.+)")
_BUCKET_OPTIONS = ("credentials", "endpoint", "region")


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
        parse_batch(spec)
    except ValueError as error:
        raise InputError(str(error)) from None
    name = options["name"] or f"{model}-batch"
    if not re.fullmatch(NAME_PATTERN, name):
        raise InputError(
            f"the name of the batch is '{name}' ({len(name)} characters); it must match {NAME_PATTERN}; choose one, for "
            "example --name night"
        )
    return {
        "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name, "namespace": namespace}, "spec": spec
    }  # fmt: skip


def _place(option: str, place: str | None, options: Json) -> dict[str, Any]:
    """Return the field `input` or `output` for a place, with the options for buckets if it is in one."""
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
    if text is None or is_date_time(text):
        return text
    if (at := epoch_seconds(text)) is not None:  # in a form that the API server doesn't accept
        return rfc3339(at)
    try:
        return rfc3339(now + duration_s(text))
    except ValueError as error:
        raise InputError(
            f"--deadline is {text}, and neither a time as 2026-12-01T06:00:00Z nor a duration: {error}"
        ) from None
