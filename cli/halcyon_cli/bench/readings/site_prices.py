"""Carbon intensity and price of the site, for options that the user hasn't given. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from halcyon_cli.bench.options.sampling import SamplingOptions
from halcyon_cli.errors import InputError
from halcyon_cli.kube import fields

Json = Mapping[str, Any]


def of_site(options: SamplingOptions, intensity: str) -> SamplingOptions:
    """Return the options with the site's carbon intensity, unless the user gave one.

    An empty text means that the site has none.

    Raises:
        InputError: the site's value is invalid.
    """
    if options.carbon_intensity is not None or not intensity:
        return options
    from halcyon_measure.breakdown.energy import MAX_G_PER_KWH  # noqa: PLC0415  # NumPy takes a while to import

    try:
        value = float(intensity)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MAX_G_PER_KWH:
        raise InputError(
            f"the site's carbon intensity (chart value cost.carbonIntensity) is {intensity}; it must be 0 to "
            f"{MAX_G_PER_KWH:g} g/kWh, for example 380. To measure with another one: --carbon-intensity 380"
        )
    return replace(options, carbon_intensity=value)


def priced(options: SamplingOptions, model: Json, measured_gpus: int) -> SamplingOptions:
    """Return the options with the price of `gpus` GPUs, from the model's own costs, unless the user gave a price.

    The price of one GPU is `status.cost.perHour` divided by `status.cost.gpus`, as in `halcyon top`.
    """
    cost = fields.mapping(fields.mapping(model.get("status")).get("cost"))
    gpus, per_hour = fields.count(cost.get("gpus")), fields.text(cost.get("perHour"))
    if options.price_per_hour is not None or not gpus or not per_hour:
        return options
    try:
        price = float(per_hour) / gpus * measured_gpus
    except ValueError:
        return options
    from halcyon_measure.breakdown.energy import MAX_PRICE_PER_HOUR  # noqa: PLC0415

    return replace(options, price_per_hour=price) if 0 <= price <= MAX_PRICE_PER_HOUR else options
