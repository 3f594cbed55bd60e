"""Buckets as input and output of a batch, in obstore's own store in memory: what is read, written once, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
from obstore import exceptions
from obstore.store import MemoryStore

from halcyon.api.documents.batch_documents import BatchBucket
from halcyon_batch import input_source
from halcyon_batch.bucket import Bucket
from halcyon_batch.bucket import opened as opened_by_url
from halcyon_batch.errors import BatchError
from halcyon_batch.input_source import BucketData
from halcyon_batch.output_parts import FAILURES, Manifest, OutputParts, RowResult

MANIFEST = Manifest(
    owner="u", name="b", digest="sha256:1", total=23, rows_per_part=5, format="Npz", made_with="sha256:2"
)


def bucket(store: MemoryStore, url: str, field: str = "spec.output", **secrets: str) -> Bucket:
    return Bucket(store, url, field, secrets, None)


def opened(store: MemoryStore, url: str, folder: Path, format_: str = "", **others: Any) -> BucketData:
    return BucketData(bucket(store, url, "spec.input"), BatchBucket(url=url, **others), folder, format_)


def test_a_file_is_read_from_its_copy_with_its_digest(tmp_path: Path) -> None:
    store = MemoryStore()
    np.savez(tmp_path / "rows.npz", x=np.arange(3_000_000, dtype=np.float32).reshape(-1, 1))  # 12 MB: two parts
    obstore.put(store, "2026/rows.npz", (tmp_path / "rows.npz").read_bytes())
    data = opened(store, "s3://sets/2026/rows.npz", tmp_path / "copy")
    assert (data.format, data.total) == ("Npz", 3_000_000)
    assert [sample.value["x"].item() for sample in data.read(2_999_998, 3_000_000)] == [2_999_998.0, 2_999_999.0]
    assert data.digest == input_source.open_input(str(tmp_path / "rows.npz"), "").digest == data.digest_now()


def test_objects_below_a_folder_are_rows_without_markers_and_hidden_ones(tmp_path: Path) -> None:
    store = MemoryStore()
    for name in ("set/b/1.png", "set/a.png", "set/.git/x", "set/b", "set/c_$folder$", "setting/z.png"):
        obstore.put(store, name, b"" if name in {"set/b", "set/c_$folder$"} else b"x")
    data = opened(store, "s3://sets/set/", tmp_path)
    assert [sample.name for sample in data.read(0, data.total)] == ["a.png", "b/1.png"]
    assert all(Path(sample.value).read_bytes() == b"x" for sample in data.read(0, 2))


def test_a_change_in_the_bucket_has_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    obstore.put(store, "rows.jsonl", b"1\n2\n")
    obstore.put(store, "set/a.json", b"1")
    data = [opened(store, "s3://sets/rows.jsonl", tmp_path), opened(store, "s3://sets/set", tmp_path)]
    assert [data_set.is_unchanged() for data_set in data] == [True, True]
    obstore.put(store, "rows.jsonl", b"1\n3\n")
    obstore.put(store, "set/b.json", b"1")
    assert [data_set.is_unchanged() for data_set in data] == [True, True]  # they were listed just now
    monkeypatch.setattr(input_source, "_CHECK_INTERVAL_S", 0.0)
    assert [data_set.is_unchanged() for data_set in data] == [False, False]
    assert [data_set.digest_now() == data_set.digest for data_set in data] == [False, False]
    assert [sample.value for sample in data[0].read(0, 2)] == [b"1\n", b"2\n"]  # the rows are those of the copy


@pytest.mark.parametrize(
    ("url", "limit_bytes", "reason", "message"),
    [
        ("s3://sets/none", None, "InputUnreadable", "s3://sets/none doesn't exist: there is no such object, and none below"),
        ("s3://sets/rows.npz", 5, "InputTooLarge", "input.sizeLimit is"),
        ("s3://sets/rows.npz", None, "InputUnreadable", "s3://sets/rows.npz isn't a file of NumPy"),
        ("s3://sets/rows.csv", None, "InputUnreadable", "the format of s3://sets/rows.csv is unknown"),
        ("s3://sets/empty.jsonl", None, "InputEmpty", "spec.input: s3://sets/empty.jsonl has no rows"),
        ("s3://sets/tree", None, "InputUnreadable", "s3://sets/tree/a/b.png can't be copied to a file: File exists; rename"),
        ("s3://sets/long", None, "InputUnreadable", "can't be copied to a file: File name too long; rename the object"),
        ("s3://sets/small", 9000, "InputTooLarge", "needs 1.14e-05 GiB of disk"),
    ],
)  # fmt: skip
def test_an_unreadable_data_set_is_refused_by_its_uri(
    tmp_path: Path, url: str, limit_bytes: int | None, reason: str, message: str
) -> None:
    store = MemoryStore()
    obstore.put(store, "rows.npz", b"no archive")
    obstore.put(store, "rows.csv", b"1,2")
    obstore.put(store, "empty.jsonl", b"")
    for name in ("tree/a", "tree/a/b.png", f"long/{'x' * 300}", "small/1", "small/2", "small/3"):
        obstore.put(store, name, b"x")
    with pytest.raises(BatchError) as caught:
        opened(store, url, tmp_path, limit_bytes=limit_bytes)
    assert (caught.value.reason, message in str(caught.value)) == (reason, True), str(caught.value)


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_copy_is_valid_although_its_bucket_is_closed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    """A session token in a Secret is valid for some hours, and a batch may take longer."""
    store = MemoryStore()
    obstore.put(store, "set/a.json", b"1")
    data = opened(store, "s3://sets/set", tmp_path)
    monkeypatch.setattr(input_source, "_CHECK_INTERVAL_S", 0.0)

    def refuse(*_: Any, **__: Any) -> None:
        kind = exceptions.PermissionDeniedError if is_refused else exceptions.GenericError
        raise kind("403 Forbidden: ExpiredToken" if is_refused else "503")

    monkeypatch.setattr(obstore, "head", refuse)
    monkeypatch.setattr(obstore, "list", refuse)
    assert data.is_unchanged()


@pytest.mark.parametrize("is_replaced", [True, False])
def test_keys_that_are_replaced_during_a_batch_end_only_the_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_replaced: bool
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise exceptions.PermissionDeniedError("<Message>The provided token has expired.</Message>")

    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("first")
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("hidden-key-1")  # no real key
    monkeypatch.setattr(obstore, "put", refuse)
    with opened_by_url(BatchBucket(url="s3://out/night", credentials=str(tmp_path)), "spec.output") as output:
        if is_replaced:
            (tmp_path / "AWS_ACCESS_KEY_ID").write_text("second")
        with pytest.raises(OSError if is_replaced else BatchError, match="The provided token has expired"):
            output.write("a", b"x")


def test_parts_of_two_runners_in_a_bucket_stay_those_of_the_first() -> None:
    store = MemoryStore()
    first, second = (OutputParts.begin(bucket(store, "s3://out/night"), MANIFEST, "s3://out/night") for _ in range(2))
    for parts, bad in ((first, {7}), (second, {8})):
        for part in range(MANIFEST.parts):
            rows = range(*MANIFEST.rows(part))
            parts.write(
                part,
                [
                    RowResult(row, "", None, f"bad {row}") if row in bad else RowResult(row, "", {"y": np.float32(row)})
                    for row in rows
                ],
            )
    second.finish()
    first.finish()
    names = bucket(store, "s3://out/night").names()
    assert names == {"batch.json", FAILURES, *(f"part-{n:05d}.npz" for n in range(5))}
    lines = bytes(obstore.get(store, f"night/{FAILURES}").bytes()).splitlines()
    assert [json.loads(line) for line in lines] == [{"row": 7, "failure": "bad 7"}]
    assert (first.failed, second.failed) == (1, 1)


def test_a_folder_with_other_objects_is_refused() -> None:
    store = MemoryStore()
    obstore.put(store, "night/thesis.tex", b"x")
    with pytest.raises(BatchError, match=r"s3://out/night isn't empty: it has thesis.tex"):
        OutputParts.begin(bucket(store, "s3://out/night"), MANIFEST, "s3://out/night")


@pytest.mark.parametrize(
    ("error", "kind", "reason", "message"),
    [
        (exceptions.PermissionDeniedError("<Message>no</Message>"), BatchError, "OutputUnwritable",
         "spec.output.credentials must name a Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (exceptions.GenericError("status 403 Forbidden: SignatureDoesNotMatch"), BatchError, "OutputUnwritable", "denied access"),
        (exceptions.GenericError("<Code>QuotaExceeded</Code>"), BatchError, "OutputFull", "enlarge its quota, then resume"),
        (exceptions.GenericError("<Code>NoSuchBucket</Code>"), BatchError, "OutputUnwritable", "the bucket of s3://out/night/a doesn't exist"),
        (exceptions.GenericError("Server returned non-2xx status code: 507 Insufficient Storage: "), BatchError, "OutputFull", "no space left"),
        (exceptions.GenericError("Error performing HEAD http://minio:9000/sets/run-1507 in 35ms - error sending request"), OSError, "", "run-1507 in 35ms"),
        (exceptions.GenericError("503 Service Unavailable, key hidden-key-1"), OSError, "", "503 Service Unavailable, key ***"),
    ],
)  # fmt: skip
def test_only_an_error_that_needs_a_user_ends_the_batch(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], reason: str, message: str
) -> None:
    def put(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(obstore, "put", put)
    with pytest.raises(kind) as caught:
        bucket(MemoryStore(), "s3://out/night", AWS_SECRET_ACCESS_KEY="hidden-key-1").write("a", b"x")  # no real key
    assert (getattr(caught.value, "reason", ""), message in str(caught.value)) == (reason, True), str(caught.value)
