"""`spec.batching`: Triton's dynamic batching."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from halcyon.api.spec.fields import Documented
from halcyon.api.types import ListSet, Rule, duration_field


class Batching(Documented):
    """Triton's dynamic batching; setting this section turns it on."""

    max_batch_size: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Maximum number of rows in one batch, 1 to 65536. Default: `max_batch_size` in the model's config.pbtxt."""
    max_queue_delay: duration_field("0us", "1m") | None = None  # type: ignore[valid-type]
    """Maximum time that Triton waits for a batch to fill, 0us to 1m, for example `2ms`. With `0us`, batches still form
    under load, and under load they are fullest with this setting. Default: the delay in the model's config.pbtxt, or
    else none."""
    preferred_batch_sizes: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(min_length=1, max_length=16), ListSet()]
        | None
    ) = None
    """Batch sizes, in rows, that Triton forms immediately when it can. Set them only for models that are faster at
    certain sizes. None may be above maxBatchSize. Default: those in the model's config.pbtxt."""
    preserve_ordering: bool | None = None
    """Whether responses are sent in the order of arrival even if there are several instances. Default: the setting in
    the model's config.pbtxt."""

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
