"""Results of the data plane benchmark: the figures of each part, the file build/bench/dataplane.json, and its updates.

The file has the main figures at the top level. `parts` has the further results of each part, the size in which it ran,
and what was simulated. Figures that were not measured are None, never 0.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[2] / "build" / "bench" / "dataplane.json"

KEYS_OF: dict[str, tuple[str, ...]] = {
    "throughput": ("throughput_share", "cpu_us_per_request", "added_latency_ms_p50"),
    "unequal": ("unequal_p99_ratio",),
    "exits": ("haproxy_exits",),
    "service": (),
    "loss": ("loss", "ready_to_first_request_s", "terminating_to_last_request_s"),
    "single": ("loss_one_replica",),
    "zero": ("wake_s", "held", "held_answered"),
    "overload": ("goodput_at_3x",),
    "rest": ("agent_idle_cores", "rss_mib"),
}
"""Keys of the figures by part, in the order in which the parts run and appear on the page."""
PARTS = tuple(KEYS_OF)

Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PartResults:
    """The measurements of one part."""

    figures: Figures
    """Figures by the keys of this part; missing ones were not measured."""
    details: Figures = field(default_factory=dict)
    """Further results that explain the figures. They are stored with the figures, and the page shows those for which it
    has a text."""
    stand_ins: tuple[str, ...] = ()
    """Descriptions of the components that were simulated."""


def merged(content: Mapping[str, Any], part: str, results: PartResults, *, short: bool, seconds: float) -> Figures:
    """Return the file's content with the figures of one part replaced, and all keys in the order of `KEYS_OF`.

    Raises:
        ValueError: a figure's key doesn't belong to the part.
    """
    foreign = results.figures.keys() - set(KEYS_OF[part])
    if foreign:
        raise ValueError(f"part {part} measured {', '.join(sorted(foreign))}; its keys are {', '.join(KEYS_OF[part])}")
    values = {**content, **dict.fromkeys(KEYS_OF[part]), **results.figures}
    parts = {
        **(content.get("parts") or {}),
        part: {
            "short": short,
            "seconds": round(seconds, 1),
            "stand_ins": list(results.stand_ins),
            "details": results.details,
        },
    }
    shares, service_share = values.get("throughput_share"), (parts.get("service") or {}).get("details", {}).get("share")
    if shares and service_share:
        # This figure is measured on the cluster, because it needs Services. Its share is relative to a pod called
        # directly there.
        values["throughput_share"] = {**shares, "service": service_share["service"]}
    keys = [key for owned in KEYS_OF.values() for key in owned]
    return {
        **{key: values.get(key) for key in keys},
        "parts": {name: parts[name] for name in PARTS if name in parts},
    }


def read(file: Path = FILE) -> Figures:
    """Return the content of the file; empty if it doesn't exist."""
    try:
        return dict(json.loads(file.read_text()))
    except FileNotFoundError:
        return {}


def write(content: Figures, file: Path = FILE) -> None:
    """Write the file atomically: a reader sees either the old or the new content."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.{os.getpid()}")
    new.write_text(json.dumps(content, indent=1) + "\n")
    new.replace(file)
