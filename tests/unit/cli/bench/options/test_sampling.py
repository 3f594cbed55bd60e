"""Options for what is read beside the load."""

from __future__ import annotations

import math

import pytest

from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_measure.errors import SettingError


def test_addresses_of_metrics_name_their_replicas() -> None:
    settings = SamplingOptions(metrics_urls=("http://10.0.0.7:8002/metrics", "http://10.0.0.8:8002/metrics")).settings()
    assert settings is not None
    assert [source.pod for source in settings.servers] == ["10.0.0.7:8002", "10.0.0.8:8002"]


def test_sampling_can_be_switched_off() -> None:
    assert SamplingOptions(no_sampling=True).settings() is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (SamplingOptions(carbon_intensity=-3), "carbon-intensity is -3; it must be 0 to 2000 g/kWh, for example"),
        (SamplingOptions(price_per_hour=math.nan), "price-per-hour is nan; it must be 0 to 10000 an hour, for example"),
    ],
)
def test_impossible_prices_are_refused_with_an_example(options: SamplingOptions, text: str) -> None:
    with pytest.raises(SettingError, match=text):
        options.prices()


def test_an_address_that_is_no_url_is_refused_with_an_example() -> None:
    with pytest.raises(SettingError, match="isn't a URL of metrics; for example"):
        SamplingOptions(balancer_metrics=("10.0.0.9:9100",)).settings()
