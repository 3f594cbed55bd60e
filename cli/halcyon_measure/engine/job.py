"""Job of a worker process, which the pool sends as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from halcyon_measure.engine.hooks import HookSettings
from halcyon_measure.errors import TensorError
from halcyon_measure.inputs.payloads import Payload, Rows, batches, file_payloads, random_payloads
from halcyon_measure.inputs.tensors import InputFile
from halcyon_measure.protocols.target import Target
from halcyon_measure.schedule.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class PayloadSettings:
    """Source of the request payloads: files or random values."""

    samples: tuple[tuple[tuple[str, str], ...], ...] = ()
    """Files of each sample, as pairs (input name or "", path); empty for random values."""
    rows: Rows = field(default_factory=Rows)
    has_chosen_rows: bool = False
    """Whether a file with another number of rows is an error. If not, such a file is sent with its own rows."""
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Shapes of the inputs without the row dimension, as pairs (input name, shape)."""
    pixel_scale: float | None = None
    seed: int = 1

    def payloads(self, target: Target) -> list[Payload]:
        """Return the payloads for the model of the target.

        Raises:
            TensorError: a file can't be read, doesn't fit its input or has other rows than the chosen ones, or the size of
                an input's dimension is unknown.
        """
        if target.api == "post":
            bodies = [path for sample in self.samples for _, path in sample]
            return [Payload({"body": np.frombuffer(_content(path), np.uint8)}, 1) for path in bodies]
        if not self.samples:
            return random_payloads(target.inputs, rows=self.rows, shapes=dict(self.shapes), seed=self.seed)
        files = [[InputFile(path, _content(path), name or None) for name, path in sample] for sample in self.samples]
        payloads = file_payloads(files, target.inputs, rows=self.rows, seed=self.seed, pixel_scale=self.pixel_scale)
        for sample, payload in zip(self.samples, payloads, strict=False):  # more payloads than samples have chosen rows
            if (
                self.has_chosen_rows
                and batches(target.inputs)
                and not self.rows.least <= payload.rows <= self.rows.most
            ):
                raise TensorError(
                    f"rows is {self.rows}, but {sample[0][1]} has {payload.rows} rows, and only a file of one row is repeated; "
                    f"leave the rows out, or write --rows {payload.rows}"
                )
        return payloads


FOLD_ABOVE = 5_000_000
"""Number of requests above which a run keeps a histogram instead of one row per request. This many rows take 0.6 GB."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Share of a load for one worker process, with all settings."""

    target: Target
    scenario: Scenario
    payload: PayloadSettings = PayloadSettings()
    hooks: HookSettings = field(default_factory=HookSettings)
    index: int = 0
    workers: int = 1
    expect: str = ""
    """Path of an .npz file with the expected outputs; empty if answers aren't checked."""
    pod_header: str = ""
    late_after_s: float | None = None
    """Latency in seconds above which an answer counts as late; None without an objective."""
    fold_above: int = FOLD_ABOVE
    """Number of requests of all workers together above which the requests are counted in a histogram."""
    result: str = ""
    """Path of the file to which the worker writes its requests."""

    def of_worker(self, index: int, workers: int, result: str) -> Job:
        """Return the job of worker `index` of `workers` workers."""
        return replace(self, index=index, workers=workers, result=result)

    def part(self, total: int) -> int:
        """Return this worker's part of a number `total` that is divided among the workers."""
        return total // self.workers + (self.index < total % self.workers)

    def to_json(self) -> str:
        """Return the job as one line of JSON."""
        document: dict[str, Any] = {
            "target": self.target.to_dict(),
            "scenario": self.scenario.to_dict(),
            "payload": asdict(self.payload),
            "hooks": self.hooks.to_dict(),
            "index": self.index,
            "workers": self.workers,
            "expect": self.expect,
            "pod_header": self.pod_header,
            "late_after_s": self.late_after_s,
            "fold_above": self.fold_above,
            "result": self.result,
        }
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse a job from the line that `to_json` returns."""
        fields: dict[str, Any] = json.loads(text)
        payload = fields["payload"]
        return cls(
            target=Target.from_dict(fields["target"]),
            scenario=Scenario.from_dict(fields["scenario"]),
            payload=PayloadSettings(
                samples=tuple(tuple((name, path) for name, path in sample) for sample in payload["samples"]),
                rows=Rows(**payload["rows"]),
                shapes=tuple((name, tuple(shape)) for name, shape in payload["shapes"]),
                pixel_scale=payload["pixel_scale"],
                seed=payload["seed"],
            ),
            hooks=HookSettings.from_dict(fields["hooks"]),
            **{
                key: fields[key]
                for key in ("index", "workers", "expect", "pod_header", "late_after_s", "fold_above", "result")
            },
        )


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TensorError(f"{path}: can't read it: {error.strerror}") from None
