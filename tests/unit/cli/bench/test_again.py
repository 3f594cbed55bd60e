"""`halcyon bench --again FILE`: the recorded arguments, those that replace them, and what isn't the same."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import click
import pytest

from halcyon_cli.bench.again import expanded, files
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.commands.bench import main as bench
from halcyon_cli.errors import InputError
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.place import Place
from tests.bench_documents import bench_document


def recorded(folder: Path, *arguments: str, **place: str) -> str:
    """Write a result with these arguments, and return its path."""
    document = bench_document(duration_s=5)
    kind = "copy" if place else "url"
    return stored(
        folder, document.model_copy(update={"place": Place(kind=kind, arguments=arguments, **place)})  # type: ignore[arg-type]  # texts
    )  # fmt: skip


def stored(folder: Path, document: BenchDocument) -> str:
    path = folder / "bench.json"
    path.write_text(document.model_dump_json())
    return str(path)


def test_recorded_arguments_come_before_those_given(tmp_path: Path) -> None:
    path = recorded(tmp_path, "--url", "http://a:8000", "--model", "m", "--rate", "100", "--seed", "3")
    assert expanded(bench, ["--again", path, "--save", "x"]) == [
        *("--url", "http://a:8000", "--model", "m", "--rate", "100", "--seed", "3"),
        *("--save", "x"),
    ]


def test_a_given_option_replaces_all_its_recorded_values(tmp_path: Path) -> None:
    path = recorded(tmp_path, "--url", "u", "--decode", "--input", "a.png", "--input", "b.png", "--rate", "5")
    assert expanded(bench, ["--input", "c.png", f"--again={path}"]) == [
        *("--url", "u", "--decode", "--rate", "5"),
        *("--input", "c.png"),
    ]


def test_another_model_takes_the_place_of_the_recorded_one(tmp_path: Path) -> None:
    path = recorded(tmp_path, "digits", "--rate", "5")
    assert expanded(bench, ["other", "--again", path]) == ["--rate", "5", "other"]
    path = recorded(tmp_path, "--url", "u", "--model", "m", "--rate", "5")
    assert expanded(bench, ["other", "--again", path]) == ["--rate", "5", "other"]


def test_model_after_an_option_takes_the_place_of_the_recorded_one(tmp_path: Path) -> None:
    path = recorded(tmp_path, "digits", "--rate", "5")
    assert expanded(bench, ["--seed", "2", "other", "--again", path]) == ["--rate", "5", "--seed", "2", "other"]
    assert expanded(bench, ["-n", "team", "--again", path]) == ["digits", "--rate", "5", "-n", "team"]


def test_url_takes_the_place_of_the_recorded_model_and_its_copy(tmp_path: Path) -> None:
    path = recorded(tmp_path, "digits", "--rate", "5", "--replicas", "2", "--trial", "--near", "node", "--seed", "3")
    server = ("--url", "http://a:8000", "--model", "m")
    assert expanded(bench, [*server, "--again", path]) == ["--rate", "5", "--seed", "3", *server]


def test_a_secret_header_is_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path, "--url", "u", "--header", "x-key:REDACTED", "--seed", "1")
    assert expanded(bench, ["--again", path]) == ["--url", "u", "--seed", "1"]
    assert (
        "not the same: the value of header x-key isn't recorded; for example --header x-key:VALUE"
        in capsys.readouterr().err
    )


def test_a_file_is_used_only_as_it_was(tmp_path: Path) -> None:
    sent = tmp_path / "cat.bin"
    sent.write_bytes(b"one")
    used = files(LoadOptions(), InputOptions(inputs=(f"image={sent}",)))
    assert [file.path for file in used] == [str(sent)]
    arguments = ("--url", "u", "--input", f"image={sent}")
    document = bench_document(duration_s=5).model_copy(
        update={"place": Place(kind="url", arguments=arguments), "files": used}
    )
    path = stored(tmp_path, document)
    assert expanded(bench, ["--again", path]) == list(arguments)
    sent.write_bytes(b"two")
    with pytest.raises(
        InputError, match=r"it has changed since the measurement; to use it as it is, add --input image="
    ):
        expanded(bench, ["--again", path])
    options = ["--input", f"image={sent}"]
    assert expanded(bench, ["--again", path, *options]) == ["--url", "u", *options]
    sent.unlink()
    with pytest.raises(InputError, match=r"cat\.bin: the measurement used it, and it isn't there any more"):
        expanded(bench, ["--again", path])


@pytest.mark.parametrize("option", ["--input", "--expect", "--trace", "--prepare", "--finish"])
def test_a_file_that_a_result_only_names_is_neither_sent_nor_run(tmp_path: Path, option: str) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("x")
    value = f"{secret}:f" if option in {"--prepare", "--finish"} else str(secret)
    path = recorded(tmp_path, "--url", "http://elsewhere", option, value)
    with pytest.raises(InputError, match=r"secret\.py: the result has no digest of it"):
        expanded(bench, ["--again", path])


@pytest.mark.parametrize("argument", ["--save=/home", "--kubeconfig", "-n", "--unknown"])
def test_an_argument_that_no_measurement_has_is_refused(tmp_path: Path, argument: str) -> None:
    path = recorded(tmp_path, "--url", "u", argument, "x")
    with pytest.raises(InputError, match="which isn't one of a measurement"):
        expanded(bench, ["--again", path])


def test_an_option_with_its_value_is_checked_as_one_apart(tmp_path: Path) -> None:
    path = recorded(tmp_path, "--url=http://elsewhere", "--input=/etc/hostname", "--api-key-file=/key")
    with pytest.raises(InputError, match="/etc/hostname: the result has no digest of it"):
        expanded(bench, ["--again", path])


def test_a_file_of_a_key_is_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path, "--url", "http://elsewhere", "--api-key-file", "/key", "--seed", "1")
    assert expanded(bench, ["--again", path]) == ["--url", "http://elsewhere", "--seed", "1"]
    assert "not the same: --api-key-file isn't repeated; to use the file again, add" in capsys.readouterr().err
    options = ["--again", path, "--api-key-file", "/other"]
    assert expanded(bench, options)[-2:] == ["--api-key-file", "/other"]


def test_a_folder_has_the_digest_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (first,) = files(LoadOptions(), InputOptions(inputs=(str(tmp_path),)))
    (tmp_path / "b").write_bytes(b"")
    (second,) = files(LoadOptions(), InputOptions(inputs=(str(tmp_path),)))
    assert first.sha256 != second.sha256


def test_choices_of_the_cluster_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path, "digits", "--seed", "1", revision="digits-6f9c", node="node-1")
    assert expanded(bench, ["--again", path]) == ["digits", "--seed", "1"]
    stderr = capsys.readouterr().err
    assert "not the same: the model is measured as it is now; it was revision digits-6f9c" in stderr
    assert "not the same: the scheduler chooses the node; it was node-1" in stderr


def test_a_result_without_arguments_is_repeated_from_its_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path, bench_document(duration_s=5, rows=8, seed=7))
    assert expanded(bench, ["--again", path]) == [
        *("--url", "http://digits:8000", "--api", "kserve", "--model", "digits", "--encoding", "binary"),
        *("--scenario", "sustained", "--rows", "8", "--duration", "5s", "--rate", "100", "--seed", "7"),
    ]
    assert "has no arguments; they follow from its target and scenario, inputs are random" in capsys.readouterr().err


def test_several_results_are_refused(tmp_path: Path) -> None:
    from halcyon_measure.report.page import page  # noqa: PLC0415
    from tests.bench_documents import stored as documents  # noqa: PLC0415

    path = tmp_path / "two.html"
    path.write_text(page(documents(bench_document(), bench_document()), library="", library_style=""))
    with pytest.raises(InputError, match=r"it has 2 results \(bench-0\.json, bench-1\.json\); give one bench\.json"):
        expanded(bench, ["--again", str(path)])


def test_again_without_a_file_is_a_usage_error() -> None:
    with pytest.raises(click.UsageError, match="requires an argument"):
        expanded(bench, ["--again"])


def test_numbers_of_a_repeated_scenario_keep_their_digits(tmp_path: Path) -> None:
    document = bench_document(duration_s=5)
    scenario = document.scenario.model_copy(update={"requests": 1_500_000, "rate_rps": 1234.5678, "on_s": 0.00005})
    args = expanded(bench, ["--again", stored(tmp_path, document.model_copy(update={"scenario": scenario}))])
    values = dict(pairwise(args))
    assert (values["--requests"], values["--rate"], values["--on"]) == ("1500000", "1234.5678", "0.00005s")
