from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from halcyon.api.types import duration_s
from halcyon_tune.errors import TuneError
from halcyon_tune.points import Callers, Configuration, Point
from halcyon_tune.profile import Profile
from halcyon_tune.space import Space

CONFIGURATIONS = tuple(Configuration(instances=count, max_batch=batch) for count in (1, 2, 4) for batch in (1, 8, 32))
SPACE = Space(today=CONFIGURATIONS[0], configurations=CONFIGURATIONS, tuned=(), left_out=())


def answered(configuration: Configuration, load: Callers, sharing: float = 1.0) -> Point:
    """A closed loop whose batches are all alike."""
    rows = min(max(load.callers // (2 * configuration.instances), 1), configuration.max_batch)
    seconds = (0.02 + 0.001 * rows) * (1 + sharing * (configuration.instances - 1))
    throughput = configuration.instances * rows / seconds
    return Point(
        configuration=configuration,
        load=load,
        seconds=10,
        throughput_rps=throughput,
        mean_s=load.callers / throughput,
        batches={rows: (100, 100 * seconds)},
    )


def run(profile: Profile, **settings: Any) -> tuple[Profile, list[tuple[int, Configuration, int]]]:
    requests = []
    while (request := profile.next()) is not None:
        step, configuration, load = request
        requests.append((step, configuration, load.callers))
        failure = settings.get("fails", lambda _: "")(configuration)
        point = answered(configuration, load, settings.get("sharing", 1.0))
        profile = profile.after(replace(point, failure="Memory", why=failure) if failure else point)
        assert len(requests) < 30
    return profile, requests


def test_callers_rise_until_full_batches_wait() -> None:
    _, requests = run(Profile(SPACE, 1.0))
    assert [callers for step, _, callers in requests if step == 1] == [1, 4, 16, 64]


def test_more_instances_end_when_they_answer_clearly_less() -> None:
    profile, requests = run(Profile(SPACE, 1.0), sharing=1.3)
    assert [configuration.instances for step, configuration, _ in requests if step == 2] == [2]
    assert "no more than fewer" in profile.exclusion_reason(Configuration(instances=2, max_batch=8))
    assert profile.exclusion_reason(Configuration(instances=4, max_batch=8))
    assert not profile.exclusion_reason(Configuration(instances=1, max_batch=8))


def test_more_instances_stay_if_noise_can_hide_their_gain() -> None:
    profile, requests = run(Profile(SPACE, 1.0), sharing=0.95)
    assert [configuration.instances for step, configuration, _ in requests if step == 2] == [2, 4]
    assert not profile.exclusion_reason(Configuration(instances=2, max_batch=8))


def test_more_instances_are_measured_while_they_gain() -> None:
    _, requests = run(Profile(SPACE, 1.0), sharing=0.1)
    assert [configuration.instances for step, configuration, _ in requests if step == 2] == [2, 4]


def test_batch_without_memory_is_out_and_the_next_smaller_is_measured() -> None:
    profile, requests = run(
        Profile(SPACE, 1.0), fails=lambda configuration: "out of memory" if configuration.max_batch > 8 else ""
    )
    assert requests[0][1].max_batch == 32
    assert requests[1][1].max_batch == 8
    assert profile.largest == 8
    assert "out of memory" in profile.exclusion_reason(Configuration(instances=1, max_batch=32))
    assert "out of memory" in profile.exclusion_reason(Configuration(instances=4, max_batch=32))


def test_instances_without_memory_are_tried_with_smaller_batches() -> None:
    _, requests = run(
        Profile(SPACE, 1.0),
        sharing=0.1,
        fails=lambda configuration: "out of memory" if configuration.max_batch * configuration.instances > 32 else "",
    )
    assert [(configuration.instances, configuration.max_batch) for step, configuration, _ in requests if step == 2] == [
        (2, 32),
        (2, 8),
        (4, 8),
    ]


def test_objective_below_one_row_is_refused_with_the_least_one() -> None:
    with pytest.raises(TuneError, match=r"one row alone takes 21 ms, S\(1\).*about 25.2 ms"):
        run(Profile(SPACE, 0.02))


def test_batches_that_take_longer_than_the_objective_end_the_callers() -> None:
    profile, requests = run(Profile(SPACE, 0.025))
    assert [callers for step, _, callers in requests if step == 1] == [1, 4, 16]
    assert profile.largest_useful_batch == 1


def test_model_that_works_with_no_batch_is_refused() -> None:
    with pytest.raises(TuneError, match=r"no configuration that was tried: .*out of memory"):
        run(Profile(SPACE, 1.0), fails=lambda _: "out of memory")


@pytest.mark.parametrize(
    ("single_s", "example"), [(0.0002, "240us"), (0.0012, "1440us"), (0.0123, "15ms"), (0.05, "60ms")]
)
def test_the_advised_objective_can_be_kept(single_s: float, example: str) -> None:
    message = Profile(SPACE, single_s / 2).objective_message(single_s)
    assert message.endswith(f"for example --objective {example}")
    assert duration_s(example) >= 1.2 * single_s - 1e-9
