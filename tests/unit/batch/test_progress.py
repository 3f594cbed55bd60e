"""The rate of a batch and its end, and the documents that a runner and the operator exchange."""

from __future__ import annotations

import random

import pytest

from halcyon.api.documents.batch_documents import MAX_BYTES, BatchDocumentError, BatchProgress, BatchRecipe
from halcyon_batch.progress import RowRate


def test_the_end_of_a_run_follows_its_later_half() -> None:
    rate = RowRate(0.0)
    assert rate.per_s(1.0) is None
    for second in range(1, 103):
        rate.add(10 if second <= 52 else 50, float(second))
    assert (rate.per_s(102.0), rate.left_s(1000, 102.0)) == (50.0, 20.0)


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


def test_a_slow_start_is_no_part_of_the_rate() -> None:
    rate = RowRate(10.0)
    for tenth in range(1, 41):
        rate.add(2 if tenth <= 20 else 10, 10.0 + tenth / 10)
        assert (rate.per_s(10.0 + tenth / 10) is None) == (tenth < 40)
    assert rate.per_s(14.0) == pytest.approx(100.0, rel=0.06)


@pytest.mark.parametrize("seed", range(20))
def test_the_end_of_a_drawn_run_is_known_after_a_tenth(seed: int) -> None:
    """Answers of 8 rows at random times, a start at half the speed, and pauses of a seventh of the time."""
    random_ = random.Random(seed)
    rows, now, answers = 100_000, 0.0, list[tuple[float, int]]()
    for _ in range(rows // 8):
        now += random_.expovariate(200.0 if now > 1.5 else 100.0)
        if random_.random() < 0.005:
            now += random_.uniform(0.0, 0.3)
        answers.append((now, 8))
    rate, done = RowRate(0.0), 0
    for at, count in answers:
        rate.add(count, at)
        done += count
        if done >= rows // 10:
            left = rate.left_s(rows - done, at)
            assert left == pytest.approx(answers[-1][0] - at, rel=0.2)
            return


@pytest.mark.parametrize("seed", range(5))
def test_regular_pauses_count_because_the_rest_has_some_too(seed: int) -> None:
    """Users take all capacity in three of ten seconds."""
    random_ = random.Random(seed)
    rate, now = RowRate(0.0), 0.0
    while now < 200.0:
        now += random_.expovariate(100.0)
        if now % 10.0 > 3.0:
            rate.add(8, now)
    assert rate.per_s(now) == pytest.approx(560.0, rel=0.08)


def test_documents_are_read_as_they_were_written() -> None:
    recipe = BatchRecipe(
        owner="u", name="b", model="m", url="http://m", input="/a", output="/b", input_format="", output_format="Npz"
    )
    assert BatchRecipe.from_json(recipe.to_json()) == recipe
    progress = BatchProgress(total=10, done=3, rows_per_s=1.5, message="x" * 9000)
    assert len(progress.to_json()) < MAX_BYTES
    assert BatchProgress.from_json(progress.to_json()).done == 3


@pytest.mark.parametrize("character", ["x", "中", "😀", '"', "\0"])
def test_a_progress_document_has_at_most_its_maximum_size(character: str) -> None:
    progress = BatchProgress(
        total=10**15 - 1, done=10**15 - 1, failed=10**15 - 1, rows_per_s=0.1 + 0.2, left_s=1e15 / 3, rows_per_request=10**9,
        waiting=character * 1000, reason="UnsupportedInputFormat", message="cause " + character * 2000,
    )  # fmt: skip
    text = progress.to_json()
    read = BatchProgress.from_json(text)

    assert len(text.encode()) <= MAX_BYTES
    assert (read.reason, read.total) == (progress.reason, progress.total)
    assert read.message.startswith("cause " + character * 200)
    assert progress.message.startswith(read.message)
    assert progress.waiting.startswith(read.waiting)
    assert len(read.waiting) >= 70


def test_short_texts_of_a_progress_document_are_complete() -> None:
    progress = BatchProgress(waiting="等待模型 😀", message="输入 " + "中" * 400)
    assert BatchProgress.from_json(progress.to_json()) == progress


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
