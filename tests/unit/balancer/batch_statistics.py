"""Responses of Triton's statistics API with given values."""

from __future__ import annotations

from typing import Any


def size(rows: int, count: int, infer_ns: int, input_ns: int = 0, output_ns: int = 0) -> dict[str, Any]:
    return {
        "batch_size": rows,
        "compute_input": {"count": count, "ns": input_ns},
        "compute_infer": {"count": count, "ns": infer_ns},
        "compute_output": {"count": count, "ns": output_ns},
    }


def version(*sizes: dict[str, Any], name: str = "digits", number: str = "1") -> dict[str, Any]:
    """Return the statistics of a version as Triton 2.51 reports them, without fields that aren't read."""
    return {"name": name, "version": number, "last_inference": 1, "execution_count": 7, "batch_stats": list(sizes)}


def stats(*versions: dict[str, Any]) -> dict[str, Any]:
    return {"model_stats": list(versions)}
