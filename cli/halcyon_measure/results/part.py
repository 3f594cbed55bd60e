"""Base class of the parts of `bench.json`. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A part of the document. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
