"""The fields of `bench.json`: each is described, and unknown ones are refused."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from generators.bench_reference import page
from halcyon_measure.results.figure import Figure


def test_every_field_of_the_reference_has_a_meaning() -> None:
    rows = re.findall(r"^\| `(.+)` \| (.*) \|$", page(), re.MULTILINE)
    assert len(rows) > 90
    assert [name for name, rest in rows if not rest.rsplit("|", 1)[-1].strip()] == []


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="extra"):
        Figure.model_validate({"value": 1, "unit": "ms", "n": 1, "source": "x", "mean": 2})
