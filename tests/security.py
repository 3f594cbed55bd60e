"""Security figures that tests count, stored in build/security/KEY.json."""

import json
from collections.abc import Mapping
from pathlib import Path

FIGURES = Path(__file__).parents[1] / "build" / "security"


def record(key: str, counts: Mapping[str, int]) -> None:
    """Store the counts of this run."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    (FIGURES / f"{key}.json").write_text(json.dumps(dict(counts)) + "\n")
