"""The client of several copies: what each side has of its own, and what can't be measured in turns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halcyon_cli.bench.options.answer import AnswerOptions
from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place import client_job, copied_model
from halcyon_cli.bench.place.bench_request import BenchRequest
from halcyon_cli.bench.place.site import BenchSite
from halcyon_cli.bench.turns import copies
from halcyon_cli.bench.turns.copies import CopiedSide
from halcyon_cli.bench.turns.sides import Side
from halcyon_cli.commands.bench import main
from halcyon_cli.errors import InputError
from halcyon_measure.errors import SettingError
from tests.unit.cli.bench.place.served_models import served

SITE = BenchSite("r.example.com/halcyon-bench:dev", "halcyon-bench", ("reg",), True, True)


def side(name: str, *, keys: str = "", latency: float | None = 0.3, **others: Any) -> CopiedSide:
    request = BenchRequest(
        name=name,
        server=ServerOptions(headers=("x-team:a",)),
        load=LoadOptions(),
        inputs=InputOptions(),
        place=PlaceOptions(),
        **others,
    )
    traffic: dict[str, Any] = {"apiKeys": {"secretName": keys}} if keys else {}
    model = served(name, spec={"traffic": traffic})
    copy = copied_model.copied(model, [])
    sampling = SamplingOptions(price_per_hour=float(len(name)), carbon_intensity=380.0)
    return CopiedSide(request, model, replace(request.load, objective=latency), copy, sampling)


def parsed(arguments: tuple[str, ...]) -> dict[str, Any]:
    """Return the parameters that the client's command receives."""
    context = main.make_context("bench", list(arguments[1:]))
    return dict(context.params)


def test_client_measures_each_copy_with_its_own_metrics_and_price() -> None:
    client = copies.client_of("team", [side("digits"), side("digits-int8", keys="k")], SITE, main)
    options = parsed(client.arguments)
    first, second = map(Side.from_json, options["sides"])
    assert (first.name, first.url, first.has_keys) == ("digits", "http://digits-bench:8000", False)
    assert second.metrics_urls == ["http://digits-int8-bench-server:8002/metrics"]
    assert second.balancer_metrics == ["http://digits-int8-bench-balancer:9100/metrics"]
    assert (first.price_per_hour, second.price_per_hour) == (6.0, 11.0)
    assert second.has_keys
    # What is alike for both are options.
    assert options["carbon_intensity"] == 380.0
    assert options["headers"] == ("x-team:a",)
    assert options["objective"] == 0.3
    assert options["price_per_hour"] is None
    assert options["to_log"]
    assert options["url"] is None


def test_client_reaches_all_copies_and_prefers_their_nodes() -> None:
    client = copies.client_of("team", [side("a"), side("b")], SITE, main)
    owner = {"metadata": {"name": "a-bench", "uid": "j"}}
    assert client.all_measured == ("a-bench", "b-bench")
    assert client_job.job_name(client.model) == "a-bench"
    to = client_job.network_policy(client, owner)["spec"]["egress"][0]["to"]
    assert [peer["podSelector"]["matchLabels"]["serving.halcyon.dev/model-deployment"] for peer in to] == [
        "a-bench",
        "b-bench",
    ]
    near = client_job.pod(client)["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert len(near) == 2
    assert {name for name, _ in client.metrics} == {"a-bench", "b-bench"}


def test_comparison_passes_its_rounds_and_conditions() -> None:
    answer = AnswerOptions(against="a", rounds=4, fail_if=("p99 > +5%",))
    client = copies.client_of("team", [side("a", answer=answer), side("b", answer=answer)], SITE, main)
    options = parsed(client.arguments)
    assert (options["against"], options["rounds"], options["fail_if"]) == ("a", 4, ("p99 > +5%",))


@pytest.mark.parametrize(
    ("place", "answer", "option"),
    [
        (PlaceOptions(live=True), AnswerOptions(), "--live"),
        (PlaceOptions(cold_start=2), AnswerOptions(), "--cold-start"),
        (PlaceOptions(), AnswerOptions(sweep=("rows=1,2",)), "--sweep"),
        (PlaceOptions(teach=True), AnswerOptions(), "--teach"),
        (PlaceOptions(trial=True), AnswerOptions(), "--trial"),
    ],
)
def test_some_measurements_are_of_one_model_at_a_time(place: PlaceOptions, answer: AnswerOptions, option: str) -> None:
    request = replace(side("a").request, place=place, answer=answer)
    assert copies.options_refusal([request, request]) == f"{option} is for one model at a time"
    assert copies.options_refusal([side("a").request, side("b").request]) == ""


def test_a_condition_about_the_capacity_needs_two_searches() -> None:
    request = replace(side("a").request, answer=AnswerOptions(against="b", fail_if=("capacity < -5%",)))
    assert "needs a search of each" in copies.options_refusal([request, request])
    with pytest.raises(SettingError, match="must be FIGURE"):
        copies.options_refusal([replace(request, answer=AnswerOptions(against="b", fail_if=("p99",)))])


def test_different_objectives_are_refused_before_anything_is_measured() -> None:
    sides = [side("a"), side("b", latency=None)]
    with pytest.raises(InputError, match=r"a has 300 ms, b has none\. Give all the same --objective, or add --anyway"):
        copies.sides_refusal(sides)
    anyway = [replace(entry, request=replace(entry.request, answer=AnswerOptions(anyway=True))) for entry in sides]
    assert copies.sides_refusal(anyway) == "their objectives differ: a has 300 ms, b has none"


def test_keys_of_two_secrets_need_two_clients() -> None:
    assert copies.sides_refusal([side("a", keys="k"), side("b")]) == ""
    assert "different Secrets: k, other" in copies.sides_refusal([side("a", keys="k"), side("b", keys="other")])


def test_sides_survive_their_option() -> None:
    original = Side(name="a", url="http://a-bench:8000", model="a", metrics_urls=("http://x",), price_per_hour=1.5)
    read = Side.from_json(original.to_json())
    assert (read.name, list(read.metrics_urls), read.price_per_hour) == ("a", ["http://x"], 1.5)
    assert "\n" not in original.to_json()
    assert json.loads(original.to_json())["has_keys"] is False


def test_deadline_of_rounds_covers_their_trace(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("t_s\n0\n600\n")
    request = side("a", answer=AnswerOptions(against="b", rounds=6)).request
    traced = replace(request, load=LoadOptions(trace=trace))
    assert copies._limits([traced, traced]).run_s > 2 * 6 * 600
