"""A runner with its input and output in a real S3 store: each row once after it stops, and what the store refuses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
from obstore.store import S3Store

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import HTTP_PORT, Triton
from e2e import gcs, s3
from e2e.cluster import binaries
from halcyon.api.documents.batch_documents import BatchBucket, BatchProgress, BatchRecipe
from halcyon_batch import bucket
from halcyon_batch.batch import Batch
from halcyon_batch.errors import BatchError
from halcyon_batch.input_source import BucketData
from tests.integration.batch.test_runner import Squares
from tests.integration.fetch.test_stores import google_key
from tests.ports import free_ports

pytestmark = pytest.mark.more


@pytest.fixture(scope="module")
def triton() -> Iterator[Triton]:
    with tritons.running([Squares()]) as (server,):
        yield server


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.Store]:
    (port,) = free_ports(1)
    with s3.running(binaries.extra_program("versitygw"), port, tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(autouse=True)
def this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is on this machine, to which a runner doesn't connect."""
    monkeypatch.setattr(bucket, "is_open", lambda address, **_: address.is_loopback)


@dataclass(frozen=True)
class Stage:
    """A model, a store, and a folder with the Secret's keys."""

    triton: Triton
    store: s3.Store
    folder: Path

    @property
    def secret(self) -> str:
        """Folder at which the Secret is mounted."""
        return str(self.folder / "secret")

    @property
    def client(self) -> S3Store:
        """A client with all rights."""
        return S3Store(
            s3.BUCKET,
            endpoint=self.store.url,
            region="us-east-1",
            access_key_id=s3.ACCESS_KEY,
            secret_access_key=s3.SECRET_KEY,
            client_options={"allow_http": True},
        )

    def recipe(self, source: str, output: str) -> BatchRecipe:
        """Return the recipe of a runner that reads and writes these paths of the bucket."""

        def place(path: str, limit: int | None) -> BatchBucket:
            url = f"s3://{s3.BUCKET}/{path}"
            return BatchBucket(url=url, endpoint=self.store.url, credentials=self.secret, limit_bytes=limit)

        return BatchRecipe(
            owner="u",
            name="b",
            model="m",
            url=f"http://{self.triton.address}:{HTTP_PORT}",
            input=str(self.folder / "copy"),
            output="",
            input_format="",
            output_format="",
            rows_per_part=40,
            input_bucket=place(source, 2**30),
            output_bucket=place(output, None),
        )

    def stored(self, folder: str) -> dict[str, bytes]:
        """Return the objects below a folder by name."""
        paths = [entry["path"] for chunk in obstore.list(self.client, prefix=folder) for entry in chunk]
        return {path.removeprefix(f"{folder}/"): bytes(obstore.get(self.client, path).bytes()) for path in paths}


@pytest.fixture
def stage(triton: Triton, store: s3.Store, tmp_path: Path) -> Stage:
    created = Stage(triton, store, tmp_path)
    Path(created.secret).mkdir()
    (tmp_path / "secret" / "AWS_ACCESS_KEY_ID").write_text(s3.ACCESS_KEY)
    (tmp_path / "secret" / "AWS_SECRET_ACCESS_KEY").write_text(s3.SECRET_KEY)
    return created


async def run(recipe: BatchRecipe) -> BatchProgress:
    batch = Batch(recipe)
    await batch.run()
    return batch.progress()


async def run_until(recipe: BatchRecipe, is_far: Callable[[], bool]) -> None:
    """Run until a condition holds, and stop there as a pod that is deleted."""

    def wait() -> None:
        while not work.done() and not is_far():
            time.sleep(0.02)

    work = asyncio.ensure_future(run(recipe))
    await asyncio.to_thread(wait)
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def test_rows_are_stored_once_in_a_bucket_after_runs_that_stop(stage: Stage) -> None:
    values = np.arange(1500, dtype=np.float32).reshape(-1, 1)
    values[[17, 900]] *= -1
    np.savez(stage.folder / "rows.npz", x=values)
    stage.store.put(f"{s3.BUCKET}/sets/rows.npz", (stage.folder / "rows.npz").read_bytes())
    recipe = stage.recipe("sets/rows.npz", "results/night")

    def parts() -> int:
        return sum(name.startswith("part-") for name in stage.stored("results/night"))

    await run_until(recipe, lambda: parts() >= 1)
    await run_until(recipe, lambda: parts() >= 7)
    await run_until(recipe, lambda: parts() >= 15)
    assert 15 <= parts() < 38
    progress = await run(recipe)

    assert (progress.total, progress.done, progress.failed, progress.is_complete) == (1500, 1498, 2, True)
    objects = stage.stored("results/night")
    assert objects.keys() == {"batch.json", "failures.jsonl", *(f"part-{n:05d}.npz" for n in range(38))}
    rows: dict[int, float] = {}
    for name in sorted(objects):
        if name.startswith("part-"):
            (stage.folder / name).write_bytes(objects[name])
            with np.load(stage.folder / name) as archive:
                assert not rows.keys() & {*archive["row"].tolist()}
                rows |= dict(zip(archive["row"].tolist(), archive["y"][:, 0].tolist(), strict=True))
    assert rows == {n: float(n) ** 2 for n in range(1500) if n not in {17, 900}}
    failures = [json.loads(line)["row"] for line in objects["failures.jsonl"].splitlines()]
    assert failures == [17, 900]


async def test_a_folder_of_a_bucket_is_a_row_per_object(stage: Stage) -> None:
    for n in range(12):
        np.save(stage.folder / "row.npy", np.array([n], np.float32))
        stage.store.put(f"{s3.BUCKET}/folder/{n:02d}.npy", (stage.folder / "row.npy").read_bytes())
    stage.store.mark(f"{s3.BUCKET}/folder/empty")
    progress = await run(stage.recipe("folder", "results/folder"))
    assert (progress.total, progress.done, progress.failed) == (12, 12, 0)
    lines = [json.loads(line) for line in stage.stored("results/folder")["part-00000.jsonl"].splitlines()]
    assert [(line["name"], line["outputs"]["y"]) for line in lines] == [
        (f"{n:02d}.npy", [float(n * n)]) for n in range(12)
    ]


async def test_an_input_that_is_replaced_ends_the_next_run_with_both_digests(stage: Stage) -> None:
    stage.store.put(f"{s3.BUCKET}/sets/rows.jsonl", b"[1]\n[2]\n")
    recipe = stage.recipe("sets/rows.jsonl", "results/changed")
    await run(recipe)
    stage.store.put(f"{s3.BUCKET}/sets/rows.jsonl", b"[1]\n[3]\n")
    with pytest.raises(
        BatchError, match=r"spec.input has changed: its digest is sha256:\w+, and .* has results of sha256:"
    ) as caught:
        await run(recipe)
    assert caught.value.reason == "InputChanged"


@pytest.mark.parametrize(
    ("changed", "reason", "message"),
    [
        ({"input_bucket": {"url": f"s3://{s3.BUCKET}/sets/none.npz"}}, "InputUnreadable", "none.npz doesn't exist"),
        ({"input_bucket": {"limit_bytes": 3}}, "InputTooLarge", "input.sizeLimit is"),
        ({"output_bucket": {"url": "s3://no-such-bucket/night"}}, "OutputUnwritable", "the bucket of s3://no-such-bucket/night doesn't exist"),
        ({"output_bucket": {"credentials": None}}, "OutputUnwritable", "spec.output.credentials must name a Secret with AWS_ACCESS_KEY_ID"),
        ({"output_bucket": {"url": f"s3://{s3.BUCKET}/sets"}}, "OutputExists", "isn't empty: it has"),
    ],
)  # fmt: skip
async def test_a_refusal_of_the_store_names_the_field(
    stage: Stage,
    changed: dict[str, dict[str, Any]],
    reason: str,
    message: str,
) -> None:
    stage.store.put(f"{s3.BUCKET}/sets/two.jsonl", b"[1]\n[2]\n")
    recipe = stage.recipe("sets/two.jsonl", "results/refused")
    for name, fields in changed.items():
        recipe = replace(recipe, **{name: replace(getattr(recipe, name), **fields)})
    with pytest.raises(BatchError) as caught:
        await run(recipe)
    assert (caught.value.reason, message in str(caught.value)) == (reason, True), str(caught.value)
    assert s3.SECRET_KEY not in str(caught.value)


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gcs.Store]:
    (port,) = free_ports(1)
    with gcs.running(
        binaries.extra_program("fake-gcs-server"), port, tmp_path_factory.mktemp("gcs") / "log"
    ) as running:
        yield running


def test_an_object_is_created_once(stage: Stage) -> None:
    place = BatchBucket(url=f"s3://{s3.BUCKET}/once", endpoint=stage.store.url, credentials=stage.secret)
    with bucket.opened(place, "spec.output") as opened:
        assert [opened.create("a", content) for content in (b"1", b"2")] == [True, False]
        assert opened.read("a") == b"1"
        opened.write("a", b"3")
        assert (opened.read("a"), opened.read("b"), opened.names()) == (b"3", None, {"a"})
        opened.remove("a")
        opened.remove("a")
        assert opened.names() == set()


def test_data_sets_in_google_storage_are_read(google: gcs.Store, tmp_path: Path) -> None:
    """Only read: the fake server doesn't accept the library's writes."""
    google.put("sets/rows.jsonl", b"[1]\n[2]\n")
    google.put("sets/folder/a.json", b"[3]")
    (tmp_path / "GOOGLE_SERVICE_ACCOUNT_KEY").write_text(google_key())
    readings = []
    for path in ("rows.jsonl", "folder"):
        place = BatchBucket(url=f"gs://{gcs.BUCKET}/sets/{path}", endpoint=google.url, credentials=str(tmp_path))
        with bucket.opened(place, "spec.input") as opened:
            data = BucketData(opened, place, tmp_path / "copy", "")
            readings.append(
                (data.format, [row.value for row in data.read(0, data.total)], data.digest == data.digest_now())
            )
    assert readings == [
        ("Jsonl", [b"[1]\n", b"[2]\n"], True),
        ("Folder", [str(tmp_path / "copy" / "files" / "a.json")], True),
    ]
