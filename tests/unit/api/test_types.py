"""Durations, quantities, names and the rules' templates."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from halcyon.api.types import NAME_PATTERN, Rule, cel_string, duration_s, duration_us, quantity
from halcyon.render import names

UNITS = ("h", "m", "s", "ms", "us")
LENGTHS = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}


@pytest.mark.parametrize(
    ("text", "us"),
    [("0us", 0), ("500us", 500), ("2ms", 2000), ("30s", 30_000_000), ("1m30s", 90_000_000), ("2h", 7_200_000_000)],
)
def test_a_duration_is_its_length_in_microseconds(text: str, us: int) -> None:
    assert duration_us(text) == us
    assert duration_s(text) == us / 1e6


@given(st.dictionaries(st.sampled_from(UNITS), st.integers(0, 999_999), min_size=1))
def test_every_combination_of_units_in_their_order_adds_up(parts: dict[str, int]) -> None:
    text = "".join(f"{parts[unit]}{unit}" for unit in UNITS if unit in parts)

    assert duration_us(text) == sum(n * LENGTHS[unit] for unit, n in parts.items())


@pytest.mark.parametrize("text", ["", "s", "10", "1.5s", "-1s", "+1s", "1s1m", "1s1s", "1d", "1 s", "1s\n", "1000000s"])
def test_a_text_that_is_no_duration_is_refused_with_good_examples(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write for example 500us, 2ms, 30s, 1m30s or 2h"):
        duration_us(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", "0"),
        ("2", "2"),
        ("500m", "0.5"),
        ("0.5", "0.5"),
        ("4Gi", str(4 * 2**30)),
        ("4G", "4000000000"),
        ("1.5Ki", "1536"),
        ("1n", "0.000000001"),
        ("1P", "1000000000000000"),
        ("1Ei", str(2**60)),
        ("4e0", "4"),
        ("1E3", "1000"),
        ("1E", str(10**18)),
        ("2.5e+1", "25"),
        ("1e-2", "0.01"),
        ("+4", "4"),
        ("-1", "-1"),
        ("-500m", "-0.5"),
        (".5", "0.5"),
        ("5.", "5"),
        ("0.1n", "0.000000001"),
        ("16Ei", str(2**63 - 1)),
        ("-16Ei", str(1 - 2**63)),
        ("0e999999999999", "0"),
        ("1e999999999999", str(2**63 - 1)),
        ("1e-999999999999", "0.000000001"),
        ("0." + "0" * 200 + "1e202", "10"),
    ],
)
def test_a_quantity_is_its_value_in_the_base_unit(text: str, value: str) -> None:
    assert quantity(text) == Decimal(value)


@given(st.integers(0, 10**12 - 1), st.sampled_from(["m", "", "k", "M", "G", "T"]))
def test_a_decimal_unit_is_a_thousand_of_the_one_before(count: int, unit: str) -> None:
    units = ["m", "", "k", "M", "G", "T", "P"]

    assert quantity(f"{count * 1000}{unit}") == quantity(f"{count}{units[units.index(unit) + 1]}")


@given(
    st.from_regex(r"[+-]?([0-9]{1,9}(\.[0-9]{0,6})?|\.[0-9]{1,6})", fullmatch=True),
    st.sampled_from(["n", "u", "m", "", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e0", "E0", "e3", "E+3", "e-3"]),
)
def test_a_quantity_is_what_the_kubernetes_client_takes_it_for(number: str, suffix: str) -> None:
    theirs = parse_quantity(number + suffix)
    assume(theirs == round(theirs, 9))  # it keeps what is finer than a billionth, which the API server doesn't

    assert quantity(number + suffix) == theirs


@given(st.text("0123456789.+-eEinumkKMGTP", max_size=12))
def test_a_text_is_a_bounded_quantity_or_refused(text: str) -> None:
    try:
        parsed = quantity(text)
    except ValueError:
        return

    assert abs(parsed) < 2**63


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "Gi",
        "e3",
        "1.2.3",
        "1X",
        "--1",
        "+-1",
        "1 Gi",
        "1Gi\n",
        "1gi",
        "1ki",
        "1mi",
        "1e",
        "1e3k",
        "1Ki3",
        "1e1.5",
    ],
)
def test_a_text_that_is_no_quantity_is_refused_with_good_examples(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity; write for example 500m, 2 or 4Gi"):
        quantity(text)


@given(st.from_regex(NAME_PATTERN, fullmatch=True))
def test_names_of_children_that_become_labels_or_host_names_fit(name: str) -> None:
    longest = [
        names.balancer(name),
        names.slot_service(name, names.SLOT_B),
        names.server(name, names.SLOT_B),
        names.revision(name, names.digest("")),
    ]

    assert max(map(len, longest)) <= 63


@pytest.mark.parametrize("message", ["for example {secretName: models}", "{uri!r} is wrong"])
def test_template_whose_example_would_be_read_as_a_field_is_rejected(message: str) -> None:
    with pytest.raises(ValueError, match="write literal braces twice"):
        Rule(cel="true", check=lambda _: True, message=message)


def test_a_template_is_a_format_expression_with_its_quotes_and_percents_escaped() -> None:
    rule = Rule(cel="true", check=lambda _: True, message="it's {a.b} % of {c}, {{x: y}}")

    assert rule.message_cel() == r"'it\'s %s %% of %s, {x: y}'.format([self.a.b, self.c])"


def test_a_string_of_cel_keeps_backslashes_and_quotes() -> None:
    assert cel_string(r"a\.b'c") == r"'a\\.b\'c'"


def test_the_pattern_of_names_has_no_room_for_more_than_52_characters() -> None:
    assert re.fullmatch(NAME_PATTERN, "a" * 52)
    assert not re.fullmatch(NAME_PATTERN, "a" * 53)
