"""Results read again: equal to what was written, or refused with the file, the field and an example."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from halcyon_measure.results.document_file import DocumentError, read, read_all
from tests.bench_documents import bench_document

DOCUMENT = json.loads(bench_document(duration_s=5).model_dump_json())


def written(folder: Path, text: str) -> Path:
    path = folder / "bench.json"
    path.write_text(text)
    return path


def changed(path: str, value: Any) -> str:
    """Return the JSON of a document with one field changed; removed if the value is `...`."""
    data = json.loads(json.dumps(DOCUMENT))
    *parents, last = path.split(".")
    inner = data
    for name in parents:
        inner = inner[name]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return json.dumps(data)


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    (stored,) = read(written(tmp_path, json.dumps(DOCUMENT)))
    assert stored.data == DOCUMENT
    assert json.loads(stored.document.model_dump_json()) == DOCUMENT


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("version", 2, "version: 2 (made by halcyon 0.1.0); this command reads version 1"),
        ("version", ..., "version: missing"),
        ("latency.p99.value", float("nan"), "latency.p99.value: nan isn't a number of JSON; a figure that wasn't measured is null"),
        ("latency.p99", ..., "latency.p99: missing"),
        ("requests.due", ..., "requests.due: missing. Requests that became due in the measured part.; for example 233"),
        ("requests.due", "many", 'requests.due: "many": input should be a valid integer'),
        ("requests.errors", -1, "requests.errors: -1; it must be 0 or more, for example 233"),
        ("requests.answered", 1, "requests.due: 500; it must be the sum of answered, rejected, timed_out"),
        ("latency.p98", 1.0, "latency.p98: unknown in version 1; the fields here are mean, p50, p90"),
        ("latency.p99.interval", [9.0, 2.0], "latency.p99.interval: [9.0, 2.0]; the lower end comes first, as [2.0, 9.0]"),
        ("distribution.from_send_ms", [1.0], "distribution.from_send_ms: 1 values; it must have one for each of the 33 shares"),
        ("goodput", {"value": None, "unit": "requests/s", "n": 0, "source": "x"}, 'goodput.reason: empty; a null value needs one, for example "no'),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_value(tmp_path: Path, field: str, value: Any, message: str) -> None:
    path = written(tmp_path, changed(field, value))
    with pytest.raises(DocumentError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_off_says_so(tmp_path: Path, share: float) -> None:
    text = json.dumps(DOCUMENT)
    path = written(tmp_path, text[: int(share * len(text))])
    with pytest.raises(DocumentError, match="cut off after"):
        read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty; copy the file again"),
        ("[1]", "not a result of halcyon bench: it must be an object"),
        ('{"version": 1, oops: 2}', "not JSON: line 1, column 16"),
        ("[" * 100_000, "nested too deep"),
        ('{"version": ' + "1" * 5000 + "}", "a number has more than 4,300 digits"),
        (
            '<!doctype html><script id="data" type="application/json" data-encoding="plain">[1]</script>',
            "the results in this report are damaged",
        ),
        (
            '<!doctype html><script id="data" type="application/json" data-encoding="plain">[]</script>',
            "this report has no results",
        ),
        ("<!doctype html><p>hello", "no results of halcyon bench are in this page"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        read(written(tmp_path, text))


def test_an_archive_of_requests_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "requests.npz"
    path.write_bytes(b"PK\x03\x04\xff\xfe\x00\x80")
    with pytest.raises(DocumentError, match=r"not text; give bench\.json"):
        read(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"none\.json: can't be read: No such file"):
        read(tmp_path / "none.json")


def test_results_of_the_same_name_have_their_paths_as_names(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "bench.json" for folder in ("fp32", "int8")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(bench_document(duration_s=5).model_dump_json())
    assert [result.name for result in read_all(paths)] == [str(path) for path in paths]
    assert [result.name for result in read_all(paths[:1])] == ["bench.json"]
    assert [result.name for result in read_all([paths[0]] * 2)] == [str(paths[0]), f"{paths[0]} (2)"]


def test_a_result_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_bytes(b"\xef\xbb\xbf" + bench_document(duration_s=5).model_dump_json().encode())
    assert read(path)[0].document.target.model == "digits"


def test_a_file_name_that_is_no_text_is_escaped(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xe9sultat.json"))
    path.write_text(bench_document(duration_s=5).model_dump_json())
    assert read(path)[0].name == "r\\udce9sultat.json"


def test_folder_stands_for_the_result_in_it(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text(json.dumps(DOCUMENT))
    (result,) = read(tmp_path)
    assert result.name == "bench.json"
    (tmp_path / "none").mkdir()
    with pytest.raises(DocumentError, match=r"none/bench.json: can't be read: No such file"):
        read(tmp_path / "none")
