from dataclasses import replace

from halcyon.scaling.frozen import immutable


@immutable(frozen=True, slots=True)
class _Value:
    count: int
    why: str = ""


def test_the_type_checker_refuses_what_the_run_time_allows() -> None:
    value = _Value(1)
    # `make lint` fails where mypy has nothing to say here any more: it warns of an `ignore` that ignores nothing.
    value.count = 2  # type: ignore[misc]
    assert value.count == 2


def test_values_compare_and_hash_by_their_fields() -> None:
    assert _Value(1, "a") == _Value(1, "a") != _Value(2, "a")
    assert len({_Value(1), _Value(1), _Value(2)}) == 2
    assert replace(_Value(1), why="b") == _Value(1, "b")
    assert not hasattr(_Value(1), "__dict__")
