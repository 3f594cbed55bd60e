"""The rate of a batch and its end, and the documents that a runner and the operator exchange."""

from __future__ import annotations

import pytest

from halcyon.api.documents.batch_documents import MAX_BYTES, BatchDocumentError, BatchProgress, BatchRecipe
from halcyon_batch.progress import RowRate


def test_the_end_of_a_run_follows_its_later_half() -> None:
    rate = RowRate(0.0)
    assert rate.per_s(1.0) is None
    for second in range(1, 101):
        rate.add(10 if second <= 50 else 50, float(second))
    assert (rate.per_s(100.0), rate.left_s(1000, 100.0)) == (50.0, 20.0)


def test_the_end_of_a_long_run_follows_its_last_two_minutes() -> None:
    rate = RowRate(0.0)
    for second in range(1, 1001):
        rate.add(50 if second <= 880 else 10, float(second))
    assert rate.per_s(1000.0) == 10.0
    assert rate.per_s(1060.0) == 5.0


def test_a_restarted_rate_forgets_what_was_before() -> None:
    rate = RowRate(0.0)
    rate.add(5, 50.0)
    rate.restart(50.0)
    for second in (51.0, 52.0, 53.0, 54.0):
        rate.add(30, second)
    assert rate.per_s(54.0) == 30.0


def test_documents_are_read_as_they_were_written() -> None:
    recipe = BatchRecipe(
        owner="u", name="b", model="m", url="http://m", input="/a", output="/b", input_format="", output_format="Npz"
    )
    assert BatchRecipe.from_json(recipe.to_json()) == recipe
    progress = BatchProgress(total=10, done=3, rows_per_s=1.5, message="x" * 9000)
    assert len(progress.to_json()) < MAX_BYTES
    assert BatchProgress.from_json(progress.to_json()).done == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version":2}',
        '{"version":1,"done":"x"}',
        '{"version":1,"done":-1}',
        '{"version":1,"rows_per_s":1e99}',
    ],
)
def test_a_document_that_a_pod_made_up_is_refused(text: str) -> None:
    with pytest.raises(BatchDocumentError):
        BatchProgress.from_json(text)
