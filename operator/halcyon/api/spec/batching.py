"""`spec.batching`: Triton's dynamic batching."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from halcyon.api.spec.fields import Documented
from halcyon.api.types import ListSet, Rule, duration_field


class Batching(Documented):
    """Triton's dynamic batching. Present: it is on. Left out: the model's own config.pbtxt decides."""

    max_batch_size: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Most rows in one batch; the model's own max_batch_size where it is left out."""
    max_queue_delay: duration_field("0us", "1m") | None = None  # type: ignore[valid-type]
    """How long Triton waits for a fuller batch; the model's own delay, or none, where it is left out. 0us still batches
    under load, and fills batches best there."""
    preferred_batch_sizes: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(min_length=1, max_length=16), ListSet()]
        | None
    ) = None
    """Batch sizes to form at once when they can be, in rows; the model's own where they are left out. Only for models that
    are faster at certain sizes."""
    preserve_ordering: bool | None = None
    """Answer in the order of arrival, also with several instances; as the model's own says where it is left out."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.maxBatchSize) || !has(self.preferredBatchSizes) || "
            "self.preferredBatchSizes.all(n, n <= self.maxBatchSize)",
            check=lambda m: (
                m.max_batch_size is None
                or m.preferred_batch_sizes is None
                or all(n <= m.max_batch_size for n in m.preferred_batch_sizes)
            ),
            message="spec.batching.preferredBatchSizes is {preferredBatchSizes} and has a size above "
            "spec.batching.maxBatchSize, which is {maxBatchSize}; for example maxBatchSize: 16, preferredBatchSizes: [8, 16]",
        ),
    )
