"""The figures: which part measures which, the file build/bench/dataplane.json, and how one part's run replaces the last one's.

The issue's keys stand at the top of the file. `parts` has what each part found beside them, in which size it ran, and what was
not real. A key that was not measured is None, never 0.
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
"""By part, in the order in which they run and stand on the page."""
PARTS = tuple(KEYS_OF)

Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one part has measured."""

    figures: Figures
    """By the keys of this part; those that are missing were not measured."""
    details: Figures = field(default_factory=dict)
    """What explains them; written beside them and shown on the page where it knows them."""
    stand_ins: tuple[str, ...] = ()
    """What was not real, in words."""


def merged(known: Mapping[str, Any], part: str, found: Found, *, short: bool, seconds: float) -> Figures:
    """The file's content with one part's figures replaced, all keys present, in the order of `KEYS_OF`.

    Raises:
        ValueError: the part has a figure under a key that is not its own.
    """
    foreign = found.figures.keys() - set(KEYS_OF[part])
    if foreign:
        raise ValueError(f"part {part} measured {', '.join(sorted(foreign))}; its keys are {', '.join(KEYS_OF[part])}")
    values = {**known, **dict.fromkeys(KEYS_OF[part]), **found.figures}
    parts = {
        **(known.get("parts") or {}),
        part: {
            "short": short,
            "seconds": round(seconds, 1),
            "stand_ins": list(found.stand_ins),
            "details": found.details,
        },
    }
    shares, of_service = values.get("throughput_share"), (parts.get("service") or {}).get("details", {}).get("share")
    if shares and of_service:
        # Measured on the cluster, where Services are; its share is of a pod asked directly there.
        values["throughput_share"] = {**shares, "service": of_service["service"]}
    keys = [key for owned in KEYS_OF.values() for key in owned]
    return {
        **{key: values.get(key) for key in keys},
        "parts": {name: parts[name] for name in PARTS if name in parts},
    }


def read(file: Path = FILE) -> Figures:
    """The file's content; nothing where there is no file."""
    try:
        return dict(json.loads(file.read_text()))
    except FileNotFoundError:
        return {}


def write(content: Figures, file: Path = FILE) -> None:
    """Write the file; who reads meanwhile sees the old one or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.{os.getpid()}")
    new.write_text(json.dumps(content, indent=1) + "\n")
    new.replace(file)
