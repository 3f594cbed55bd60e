"""Options for the place of a measurement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from halcyon_cli.bench.options.answer import AnswerOptions
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place.bench_request import BenchRequest, deadlines
from halcyon_cli.errors import InputError
from halcyon_measure.errors import SettingError

REQUEST = BenchRequest(
    name="digits", server=ServerOptions(), load=LoadOptions(), inputs=InputOptions(), place=PlaceOptions()
)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"live": True}, "leave out --live"),
        ({"replicas": 2, "near": "node"}, "leave out --replicas 2 and --near node"),
        ({"cold_start": 3}, "leave out --cold-start 3"),
    ],
)
def test_options_of_a_copy_do_not_fit_a_trial_pod(others: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"--trial measures one pod, with its client in it; {message}"):
        PlaceOptions(trial=True, **others).check()
    PlaceOptions(trial=True, client_cpu="2", priority_class="low").check()


def test_shared_memory_needs_a_trial_pod() -> None:
    def request(place: PlaceOptions) -> BenchRequest:
        server = ServerOptions(shared_memory="system")
        return BenchRequest(
            name="digits", server=server, load=LoadOptions(callers=1), inputs=InputOptions(), place=place
        )

    with pytest.raises(InputError, match="--shared-memory system needs client and server in one pod; add --trial"):
        request(PlaceOptions()).check()
    assert request(PlaceOptions(trial=True)).check().url("127.0.0.1") == "http://127.0.0.1:8000"


def test_deadline_of_a_sweep_covers_its_points() -> None:
    answer = AnswerOptions(sweep=("callers=" + ",".join(map(str, range(1, 401))),), yes=True)
    load = LoadOptions(duration=60.0)
    request = replace(REQUEST, load=load, answer=answer)
    assert deadlines(request).run_s > 400 * 62.5
    assert deadlines(replace(request, answer=AnswerOptions(sweep=("callers=1,2",)))).run_s > 4 * 3600


def test_sweep_is_checked_before_anything_is_created() -> None:
    with pytest.raises(SettingError, match="must be AXIS=VALUES"):
        replace(REQUEST, answer=AnswerOptions(sweep=("rows",))).check()
