"""Plans of faults: points by what is written, each with both crashes, and samples that are spread evenly."""

from hypothesis import given
from hypothesis import strategies as st

from tests.faults.plans import MODEL, SITE, Plan, Point, Points, crashes, in_turn, sliced, spread


def test_writes_are_points_by_their_target_and_number() -> None:
    points = Points()
    assert points.add(MODEL, "PATCH", "deployments/m-a") == Point(MODEL, "PATCH", "deployments/m-a", 1)
    assert points.add(SITE, "PATCH", "deployments/m-a").number == 1
    assert points.add(MODEL, "PATCH", "deployments/m-a").number == 2
    assert points.add(MODEL, "DELETE", "deployments/m-a").number == 1
    assert [point.number for point in points.seen] == [1, 1, 2, 1]


def test_pods_are_points_without_the_random_part_of_their_name() -> None:
    points = Points()
    first = points.add(MODEL, "POST", "pods/m-a-6b7f9c8d5-x2x4z/eviction")
    second = points.add(MODEL, "POST", "pods/m-a-6b7f9c8d5-abcde/eviction")
    assert (first.target, second.target) == ("pods/m-a-*/eviction",) * 2
    assert (first.number, second.number) == (1, 2)


def test_crashes_cover_each_point_before_and_after_once() -> None:
    points = Points()
    seen = [points.add(MODEL, "PATCH", f"services/{name}") for name in ("m", "m", "n")]
    found = crashes("create", [*seen, *seen])
    assert len({plan.id for plan in found}) == len(found) == 6
    assert found[0] == Plan("create", "crash-before", "model:PATCH:services/m:1")


@given(st.lists(st.integers(), max_size=60), st.integers(1, 20))
def test_samples_have_the_ends_and_no_more_than_asked(items: list[int], most: int) -> None:
    found = spread(items, most)
    assert len(found) == min(len(items), most)
    if items:
        assert found[0] == items[0]
        assert most == 1 or found[-1] == items[-1]


def test_plans_of_all_workloads_are_in_a_slice_in_turn() -> None:
    assert in_turn([["a1", "a2", "a3"], ["b1"], [], ["c1", "c2"]]) == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert sliced(["a1", "b1", "c1", "a2", "c2"], 2) == [["a1", "b1"], ["c1", "a2"], ["c2"]]
