"""What a runner leaves for its operator when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from halcyon.api.documents.batch_documents import BatchProgress, BatchRecipe
from halcyon_batch.__main__ import main
from halcyon_batch.batch import Batch
from halcyon_batch.errors import BatchError
from tests.ports import free_ports


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
    recipe = BatchRecipe(
        owner="u", name="b", model="m", url="http://m", input="i", output="o", input_format="", output_format=""
    )
    status = main([recipe.to_json()])
    found = BatchProgress.from_json((tmp_path / "log").read_text())
    assert (status, found.reason, found.message) == left
