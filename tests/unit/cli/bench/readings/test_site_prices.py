"""Carbon and money by the site, unless the user gives them."""

from __future__ import annotations

import pytest

from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_cli.bench.readings import site_prices
from halcyon_cli.errors import InputError
from tests.unit.cli.bench.place.served_models import served


def test_carbon_intensity_is_the_sites() -> None:
    assert site_prices.of_site(SamplingOptions(), "380").carbon_intensity == 380
    assert site_prices.of_site(SamplingOptions(), "0").carbon_intensity == 0
    assert site_prices.of_site(SamplingOptions(), "").carbon_intensity is None


def test_option_replaces_the_sites() -> None:
    assert site_prices.of_site(SamplingOptions(carbon_intensity=20), "380").carbon_intensity == 20
    assert site_prices.of_site(SamplingOptions(carbon_intensity=20), "nan").carbon_intensity == 20


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "2001", "low"])
def test_an_impossible_intensity_names_value_limit_and_example(text: str) -> None:
    expected = rf"cost.carbonIntensity\) is {text}; it must be 0 to 2000 g/kWh, for example 380.*--carbon-intensity 380"
    with pytest.raises(InputError, match=expected):
        site_prices.of_site(SamplingOptions(), text)


def test_price_is_that_of_the_models_gpus() -> None:
    model = served(status={"cost": {"gpus": 3, "perHour": "7.50"}})
    assert site_prices.priced(SamplingOptions(), model, 2).price_per_hour == 5.0
    assert site_prices.priced(SamplingOptions(price_per_hour=1.0), model, 2).price_per_hour == 1.0


def test_a_price_of_zero_is_a_known_price() -> None:
    model = served(status={"cost": {"gpus": 3, "perHour": "0.00"}})
    assert site_prices.priced(SamplingOptions(), model, 2).price_per_hour == 0.0


@pytest.mark.parametrize(
    "cost",
    [{}, {"gpus": 0, "perHour": "0.00"}, {"gpus": 2}, {"gpus": 2, "perHour": "free"}, {"gpus": 1, "perHour": "9e9"}],
)
def test_unknown_price_stays_unknown(cost: dict[str, object]) -> None:
    assert site_prices.priced(SamplingOptions(), served(status={"cost": cost}), 3).price_per_hour is None
