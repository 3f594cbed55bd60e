"""A runner from the description of its model to what it leaves when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from halcyon.api.documents.batch_documents import BatchProgress, BatchRecipe
from halcyon_batch import batch
from halcyon_batch.__main__ import main
from halcyon_batch.batch import Batch
from halcyon_batch.errors import BatchError
from halcyon_measure.protocols import connect
from tests.ports import free_ports

RECIPE = BatchRecipe(
    owner="u", name="b", model="m", url="http://m", input="i", output="o", input_format="", output_format=""
)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([(503, b"no server is up"), (500, b""), (200, b'{"max_batch_size": 8}')], {"max_batch_size": 8}),
        ([(400, b'{"error": "no configuration"}')], {}),
        ([(200, b"no JSON")], {}),
    ],
)
async def test_a_configuration_that_a_server_lacks_now_is_read_again(
    monkeypatch: pytest.MonkeyPatch, answers: list[tuple[int, bytes]], expected: dict[str, int]
) -> None:
    left = iter(answers)
    monkeypatch.setattr(batch, "_MODEL_WAIT_S", 0.0)
    monkeypatch.setattr(connect, "described", lambda to: to)
    monkeypatch.setattr(connect, "exchange", lambda *_: next(left))
    assert (await Batch(RECIPE)._wait_for_model())[1] == expected
    assert [*left] == []


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (OSError(5, "Input/output error", "/data/x"), (1, "", "OSError: [Errno 5] Input/output error: '/data/x'")),
        (MemoryError(), (1, "", "MemoryError")),
        (BatchError("OutputFull", "no space is left"), (2, "OutputFull", "no space is left")),
    ],
)
def test_a_runner_that_ends_leaves_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, left: tuple[int, str, str]
) -> None:
    async def run(_: Batch) -> None:
        raise error

    (port,) = free_ports(1)
    monkeypatch.setattr(Batch, "run", run)
    monkeypatch.setenv("HALCYON_PORT", str(port))
    monkeypatch.setenv("HALCYON_TERMINATION_LOG", str(tmp_path / "log"))
    status = main([RECIPE.to_json()])
    progress = BatchProgress.from_json((tmp_path / "log").read_text())
    assert (status, progress.reason, progress.message) == left
