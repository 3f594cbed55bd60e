from hypothesis import given
from hypothesis import strategies as st

from halcyon.control.autoscaling.limits.gpu_budget import GpuBudget
from halcyon.kube.kinds import Key

A, B, OTHER = Key("ml", "a"), Key("ml", "b"), Key("ml", "other")


def test_free_gpus_are_given_at_once() -> None:
    budget = GpuBudget(8)
    assert budget.request(A, desired=3, current=1, gpus=1) is None
    assert budget.request(B, desired=5, current=1, gpus=1) is None


def test_a_model_without_free_gpus_keeps_its_own_and_has_the_reason() -> None:
    budget = GpuBudget(8)
    assert budget.request(A, desired=6, current=6, gpus=1) is None
    ceiling = budget.request(B, desired=5, current=2, gpus=1)
    assert ceiling is not None
    assert (ceiling.name, ceiling.replicas) == ("budget", 2)
    assert ceiling.why == ("desires 5 (5 GPUs), granted 2: the site's budget of 8 GPUs is shared by priority and need")


def test_gpus_that_a_model_returns_are_free_once_they_are_gone() -> None:
    budget = GpuBudget(8)
    budget.request(A, desired=6, current=6, gpus=1)
    assert budget.request(B, desired=5, current=2, gpus=1) is not None
    assert budget.share() == []
    budget.request(A, desired=2, current=6, gpus=1)
    assert budget.share() == []
    budget.request(A, desired=2, current=2, gpus=1)
    assert budget.share() == [B]
    assert budget.request(B, desired=5, current=2, gpus=1) is None
    assert budget.share() == []


def test_a_higher_priority_goes_first_and_takes_nothing_from_running_models() -> None:
    budget = GpuBudget(4)
    for key, priority in ((A, 0), (B, 10)):
        assert budget.request(key, desired=6, current=1, gpus=1, priority=priority) is not None
    assert budget.share() == [B]
    after = (
        budget.request(A, desired=6, current=1, gpus=1),
        budget.request(B, desired=6, current=1, gpus=1, priority=10),
    )
    assert [ceiling.replicas for ceiling in after if ceiling] == [1, 3]


def test_a_model_at_zero_keeps_the_priority_of_its_last_pods() -> None:
    budget = GpuBudget(4)
    budget.request(B, desired=1, current=1, gpus=1, priority=10)
    budget.request(B, desired=0, current=0, gpus=1)
    budget.request(OTHER, desired=4, current=4, gpus=1, priority=5)
    for key in (A, B):
        assert budget.request(key, desired=1, current=0, gpus=1) is not None
    budget.request(OTHER, desired=3, current=3, gpus=1, priority=5)

    assert budget.share() == [B]


def test_a_model_without_a_gpu_is_not_in_it() -> None:
    assert GpuBudget(0).request(A, desired=100, current=1, gpus=0) is None


def test_a_model_that_went_leaves_its_share() -> None:
    budget = GpuBudget(4)
    budget.request(A, desired=4, current=4, gpus=1)
    budget.share()
    budget.forget(A)
    assert budget.request(B, desired=4, current=0, gpus=1) is None


def test_models_without_replicas_come_before_growing_ones() -> None:
    budget = GpuBudget(4)
    budget.request(A, desired=9, current=3, gpus=1)
    budget.request(B, desired=1, current=0, gpus=1)
    budget.request(A, desired=9, current=3, gpus=1)
    assert budget.request(B, desired=1, current=0, gpus=1) is None


_REQUESTS = st.tuples(st.sampled_from("abcd"), st.integers(0, 12), st.booleans())


@given(gpus=st.integers(0, 30), requests=st.lists(_REQUESTS, max_size=40))
def test_held_gpus_never_exceed_the_budget(gpus: int, requests: list[tuple[str, int, bool]]) -> None:
    budget, counts, sizes = GpuBudget(gpus), dict.fromkeys("abcd", 0), {"a": 1, "b": 1, "c": 2, "d": 4}
    for name, desired, shared in requests:
        if shared:
            budget.share()
        ceiling = budget.request(Key("ml", name), desired=desired, current=counts[name], gpus=sizes[name])
        counts[name] = desired if ceiling is None else min(desired, ceiling.replicas)
        assert sum(counts[each] * sizes[each] for each in counts) <= gpus
