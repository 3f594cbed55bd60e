"""`halcyon plan`, from its arguments to what it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from halcyon.main import main
from halcyon_cli.plan.observations_file import ObservationsError, parse_observations
from tests.unit.cli.explain.test_report import GOLDEN, compared

ROOT = Path(__file__).parents[4]
DIGITS = ROOT / "manifests/examples/digits.yaml"
RECORD = ROOT / "manifests/examples/observations.json"
MODEL = """\
apiVersion: serving.halcyon.dev/v1alpha1
kind: ModelDeployment
metadata: {name: m}
spec:
  model: {source: {persistentVolumeClaim: {claimName: models, path: m}}}
  batching: {maxBatchSize: 4}
  scaling: {minReplicas: 1, maxReplicas: 8}
"""


PODS = [{"name": f"m-{n}", "phase": "ready", "created_at": 5} for n in range(2)]


def readings(*rates: float, begin: float = 1000.0, arrived: float = 0.0) -> list[dict[str, Any]]:
    """One a second; a batch of any size takes 0.4 s."""
    rows = []
    for second, rate in enumerate(rates):
        arrived += rate
        at = begin + second
        rows.append({"at": at, "replicas": 2, "arrived": arrived, "waiting": 0, "inflight": 3, "batches": {"1": [3, 1.2], "4": [3, 1.2]}, "pods": PODS})  # fmt: skip
    return rows


class Desk:
    """A folder and the command."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.model = self.file("model.yaml", MODEL)

    def file(self, name: str, content: Any) -> str:
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def run(self, record: Any, *options: str, model: str | None = None) -> tuple[int, str, str]:
        """(exit status, stdout, stderr)."""
        status = main(["plan", "-f", model or self.model, "--observations", self.file("obs.json", record), *options])
        captured = self._capsys.readouterr()
        return status, captured.out, captured.err


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, capsys)


def test_the_example_is_planned_from_quiet_through_silence_to_the_step(desk: Desk) -> None:
    status, out, err = desk.run(RECORD.read_text(), "-o", "json", model=str(DIGITS))
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert document["name"] == "digits"
    counts = [decision["desired"] for decision in document["decisions"]]
    assert counts[0] == 3
    assert max(counts) == 6
    silent = document["decisions"][10]
    assert silent["desired"] == 3
    assert silent["limits"][0]["name"] == "unknown"


def test_the_decisions_on_the_example_are_those_of_the_golden_file(desk: Desk) -> None:
    _, out, _ = desk.run(RECORD.read_text(), model=str(DIGITS))

    compared(GOLDEN / "plan-observations.txt", out)


def test_decisions_are_the_same_in_json_and_yaml(desk: Desk) -> None:
    record = readings(*[20.0] * 3)
    _, as_json, _ = desk.run(record, "-o", "json")

    assert yaml.safe_load(desk.run(record, "-o", "yaml")[1]) == json.loads(as_json)


def test_each_decision_is_a_sentence_and_a_table_of_its_terms(desk: Desk) -> None:
    status, out, _ = desk.run(readings(*[20.0] * 20), "--every")
    assert status == 0
    blocks = out.strip().split("\n\n")
    assert len(blocks) == 20
    head, *rows = blocks[-1].splitlines()
    assert head.startswith("1970-01-01T00:16:59Z  ")
    assert "replicas: 20 req/s" in head
    assert head.endswith("(2 before; next evaluation in 1 s)")
    assert any(row.split()[0] == "rate" and " * " in row for row in rows)


def test_decisions_like_the_one_before_are_counted_and_not_printed(desk: Desk) -> None:
    record = readings(*[20.0] * 20, *[60.0] * 20)
    every = [each.splitlines() for each in desk.run(record, "--every")[1].strip().split("\n\n")]
    status, out, _ = desk.run(record)
    assert status == 0
    printed, at = 0, -1
    for block in out.strip().split("\n\n"):
        lines = block.splitlines()
        more = re.fullmatch(r"  and (\d+) more until (\S+)", lines[-1])
        at += 1
        assert lines[: len(every[at])] == every[at]
        if more is not None:
            at += int(more[1])
            assert every[at][0].startswith(f"{more[2]}  ")
        printed += 1
    assert at + 1 == len(every) == 40
    assert 2 <= printed < 20


def test_a_record_can_be_planned_in_two_pieces(desk: Desk) -> None:
    record = readings(*[20.0] * 30, *[60.0] * 30)
    memory = str(desk.folder / "memory.json")
    at_once = json.loads(desk.run(record, "-o", "json")[1])["decisions"]
    first = json.loads(desk.run(record[:40], "-o", "json", "--save-memory", memory)[1])["decisions"]
    status, out, err = desk.run(record[40:], "-o", "json", "--memory", memory)
    assert (status, err) == (0, "")
    assert [d["desired"] for d in first + json.loads(out)["decisions"]] == [d["desired"] for d in at_once]


def test_a_memory_of_a_later_time_is_refused(desk: Desk) -> None:
    memory = str(desk.folder / "memory.json")
    desk.run(readings(*[20.0] * 5), "--save-memory", memory)
    status, _, err = desk.run(readings(*[20.0] * 5), "--memory", memory)
    assert status == 2
    assert "the memory ends at 1970-01-01T00:16:44Z" in err


def test_unreadable_parts_of_a_memory_are_reported_and_the_rest_counts(desk: Desk) -> None:
    memory = desk.file("memory.json", {"version": 1, "hold": 5})
    status, _, err = desk.run(readings(20.0, 20.0), "--memory", memory)
    assert status == 0
    assert "hold is 5, not an object; hold starts from scratch" in err
    status, _, err = desk.run(readings(20.0), "--memory", desk.file("memory.json", "{"))
    assert status == 2
    assert "memory.json: invalid JSON" in err


QUIET = [{**r, "inflight": 0} for r in readings(5.0, 5.0, *[0.0] * 80)]
"""Nobody asks from the third second on."""


def test_options_override_the_resource_on_trial(desk: Desk) -> None:
    _, out, _ = desk.run(
        QUIET, "-o", "json", "--min", "0", "--idle-after", "30s", "--latency", "2s", "--start-time", "5s"
    )
    last = json.loads(out)["decisions"][-1]
    assert last["desired"] == 0
    assert "idleTimeout is 30 s" in last["summary"]


def test_latency_and_idle_after_are_those_of_the_resource(desk: Desk) -> None:
    targets = "{minReplicas: 0, maxReplicas: 8, idleTimeout: 20s, targets: {latency: 1s}}"
    model = desk.file("own.yaml", MODEL.replace("{minReplicas: 1, maxReplicas: 8}", targets))
    last = json.loads(desk.run(QUIET, "-o", "json", model=model)[1])["decisions"][-1]
    assert last["desired"] == 0
    assert "idleTimeout is 20 s" in last["summary"]

    busy = readings(*[15.0] * 60)
    tight = json.loads(desk.run(busy, "-o", "json", model=model)[1])["decisions"][-1]["desired"]
    loose = json.loads(desk.run(busy, "-o", "json", "--latency", "1m", model=model)[1])["decisions"][-1]["desired"]
    assert (tight, loose) == (3, 2)


def test_a_trial_minimum_of_0_goes_to_0_after_the_default_time(desk: Desk) -> None:
    record = [{**r, "inflight": 0} for r in readings(5.0, 5.0, *[0.0] * 302)]
    decisions = json.loads(desk.run(record, "-o", "json", "--min", "0")[1])["decisions"]
    assert decisions[298]["desired"] > 0
    assert "idleTimeout is 300 s" in decisions[-1]["summary"]
    assert decisions[-1]["desired"] == 0


SCHEDULED = """\
  scaling:
    minReplicas: 1
    maxReplicas: 8
    schedules:
      - {name: opening, start: "1 0 1 1 *", duration: 1m, minReplicas: 5}
      - {name: thrift, start: "2 0 1 1 *", duration: 1m, maxReplicas: 2}
"""
"""1970 begins with them: from second 60 to 120, from 120 to 180."""


def test_each_reading_is_decided_on_with_the_schedules_that_were_open_then(desk: Desk) -> None:
    model = desk.file("timed.yaml", MODEL.replace("  scaling: {minReplicas: 1, maxReplicas: 8}\n", SCHEDULED))
    record = readings(*[15.0] * 140, begin=50.0)
    decisions = json.loads(desk.run(record, "-o", "json", model=model)[1])["decisions"]
    open_at = {d["now"]: [s["name"] for s in d["schedules"]] for d in decisions}
    assert [at for at, names in open_at.items() if names == ["opening"]] == [float(at) for at in range(60, 120)]
    assert [at for at, names in open_at.items() if names == ["thrift"]] == [float(at) for at in range(120, 180)]
    assert {d["desired"] for d in decisions if 60 <= d["now"] < 120} == {5}
    assert {d["desired"] for d in decisions if 120 <= d["now"] < 180} == {2}
    table = desk.run(record, "--every", model=model)[1]
    assert table.count("\n  schedule opening") == 60
    assert "  at least 5\n" in table
    assert "  at most 2\n" in table
    reasons = {limit["why"] for d in decisions for limit in d["limits"] if limit["name"] in {"min", "max"}}
    assert reasons
    assert all(reason.startswith(("the schedule opening sets", "the schedule thrift sets")) for reason in reasons)


@pytest.mark.parametrize("options", [["--latency", "soon"], ["--min", "-1"], ["--idle-after", "0s"]])
def test_wrong_usage_is_status_2(desk: Desk, options: list[str]) -> None:
    assert main(["plan", "-f", desk.model, "--observations", "x.json", *options]) == 2


def test_the_missing_kubeconfig_is_named_without_observations(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", desk.model]) == 2
    assert f"no cluster: kubeconfig {Path.home()}/.kube/config doesn't exist; name one" in (capsys.readouterr().err)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: [", "invalid YAML"),
        ("kind: Service", "no ModelDeployment; it needs apiVersion"),
        (MODEL.replace("v1alpha1", "v9"), "apiVersion is 'serving.halcyon.dev/v9'; it must be serving.halcyon.dev/v1alpha1"),
        (MODEL + "---\n" + MODEL.replace("name: m}", "name: other}"), "2 objects of kind ModelDeployment (m, other); choose one, for example --name m"),
        (MODEL.replace("maxReplicas: 8", "maxReplicas: 0"), "ModelDeployment m: spec.scaling.maxReplicas is 0"),
        (MODEL.replace("  scaling: {minReplicas: 1, maxReplicas: 8}\n", ""), "ModelDeployment m: spec.scaling is missing"),
        (MODEL.replace("maxBatchSize: 4", "maxBatchSize: 2025-01-01"), 'spec.batching.maxBatchSize is "2025-01-01": must be'),
        (MODEL.replace("maxBatchSize: 4", "maxBatchSize: !!timestamp 2025-01-01"), "a value in spec is not valid JSON"),
        (MODEL.replace("8}\n", "8, schedules: [{name: a, start: 0 8 * * *, duration: 1h, timeZone: Mars/Base, maxReplicas: 2}]}\n"), 'ModelDeployment m: spec.scaling.schedules: schedule a: timeZone "Mars/Base" is not in the tz database; for example'),
        ("kind: ModelDeployment\napiVersion: serving.halcyon.dev/v1alpha1\nmetadata: {name: m}\n", "spec is None"),
    ],
)  # fmt: skip
def test_a_wrong_model_is_reported_with_its_file(desk: Desk, text: str, message: str) -> None:
    status, out, err = desk.run(readings(1.0), model=desk.file("wrong.yaml", text))
    assert (status, out) == (2, "")
    assert err.startswith("halcyon plan: ")
    assert "wrong.yaml: " in err
    assert message in err


def test_a_model_among_several_is_chosen_by_its_name(desk: Desk) -> None:
    both = desk.file("both.yaml", MODEL + "---\n" + MODEL.replace("name: m}", "name: other}"))
    status, out, _ = desk.run(readings(1.0), "-o", "json", "--name", "other", model=both)
    assert (status, json.loads(out)["name"]) == (0, "other")
    assert "it contains m, other, for example --name m" in desk.run(readings(1.0), "--name", "third", model=both)[2]


def test_files_that_cannot_be_read_or_written_are_named(desk: Desk) -> None:
    assert "gone.yaml: can't read it: No such file" in desk.run(readings(1.0), model=str(desk.folder / "gone.yaml"))[2]
    status, _, err = desk.run(readings(1.0), "--save-memory", str(desk.folder / "no/where.json"))
    assert status == 2
    assert "where.json: can't write it" in err
    assert "--min 9 is above spec.scaling.maxReplicas, which is 8" in desk.run(readings(1.0), "--min", "9")[2]
    assert "-o name is for the objects of a model, and a replay has none" in desk.run(readings(1.0), "-o", "name")[2]


GOOD_POD = {"name": "p", "phase": "ready", "created_at": 5}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("[", "obs.json: invalid JSON"),
        ({}, "obs.json: is {}; it must be a list of readings"),
        ([], "obs.json: is an empty list"),
        ([5], "obs.json: [0] is 5; it must be an object"),
        ([{"replicas": 1}], '[0] has neither "at" nor "now"'),
        ([{"at": 1}], "[0].replicas is missing"),
        ([{"at": 1, "replicas": -1}], "[0].replicas is -1; it must be a whole number from 0"),
        ([{"at": 1, "replicas": True}], "[0].replicas is true"),
        ([{"at": "now", "replicas": 1}], '[0].at is "now"; it must be seconds since the epoch, or a timestamp with a time zone'),
        ([{"at": "2025-11-21T04:40:00", "replicas": 1}], "a timestamp with a time zone"),
        ([{"at": 1, "replicas": 1, "waiting": "3"}], '[0].waiting is "3"; it must be a number, for example 12'),
        ([{"at": 1, "replicas": 1, "wating": 3}], "[0].wating is not a field; the fields are now, at, replicas"),
        ([{"at": 2, "replicas": 1}, {"at": 2, "replicas": 1}], "[1].now is 2.000, and the previous reading is of 2.000"),
        ([{"at": 1, "replicas": 1, "batches": []}], "[0].batches is []; it must be an object"),
        ([{"at": 1, "replicas": 1, "batches": {"0": [1, 1]}}], "[0].batches is"),
        ([{"at": 1, "replicas": 1, "batches": {"4": [1]}}], "[0].batches.4 is [1]; it must be [executions, seconds]"),
        ([{"at": 1, "replicas": 1, "batches": {"4": [1.5, 1]}}], "[0].batches.4[0] is 1.5"),
        ([{"at": 1, "replicas": 1, "batches": {"4": [1, None]}}], "[0].batches.4[1] is null"),
        ([{"at": 1, "replicas": 1, "revision": 3}], "[0].revision is 3; it must be a string"),
        ([{"at": 1, "replicas": 1, "pods": 3}], "[0].pods is 3; it must be a list"),
        ([{"at": 1, "replicas": 1, "pods": [{**GOOD_POD, "phase": "redy"}]}], '[0].pods[0].phase is "redy"; it must be one of'),
        ([{"at": 1, "replicas": 1, "pods": [{"name": "p"}]}], "[0].pods[0].phase is missing"),
        ([{"at": 1, "replicas": 1, "pods": [{**GOOD_POD, "ready_at": []}]}], "[0].pods[0].ready_at is []"),
    ],
)  # fmt: skip
def test_a_wrong_record_is_reported_with_file_place_value_and_example(desk: Desk, record: Any, message: str) -> None:
    status, out, err = desk.run(record)
    assert (status, out) == (2, "")
    assert message in err
    assert "obs.json" in err


def test_times_may_be_written_as_people_write_them_and_omissions_are_unknown() -> None:
    (entry,) = parse_observations('[{"at": "2025-11-21T04:40:00Z", "replicas": 2}]', file="f")
    assert entry.now == entry.reading.at == 1_763_700_000.0
    assert {entry.reading.arrived, entry.reading.waiting, entry.reading.gpu, entry.reading.batches} == {None}
    (entry,) = parse_observations('[{"at": null, "now": 7, "replicas": 2, "waiting": NaN}]', file="f")
    assert (entry.now, entry.reading.at) == (7.0, None)
    (entry,) = parse_observations('[{"at": 1, "replicas": 2, "revision": "0db7c77ec7"}]', file="f")
    assert entry.reading.revision == "0db7c77ec7"
    with pytest.raises(ObservationsError):
        parse_observations("[" * 100_000, file="f")


def test_an_integer_beyond_any_float_is_refused_by_field() -> None:
    large = "1" + "0" * 400
    for field in ("at", "waiting"):
        reading = {"at": "1", "waiting": "2"} | {field: large}
        text = f'[{{"at": {reading["at"]}, "replicas": 1, "waiting": {reading["waiting"]}}}]'
        with pytest.raises(ObservationsError, match=rf"f: \[0\]\.{field} is 1000"):
            parse_observations(text, file="f")


def test_files_with_a_byte_order_mark_are_read(desk: Desk) -> None:
    model = desk.file("bom.yaml", "\ufeff" + MODEL)
    assert desk.run("\ufeff" + json.dumps(readings(1.0, 1.0)), model=model)[0] == 0
