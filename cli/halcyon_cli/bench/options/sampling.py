"""Options for data that is read during the load: metrics, energy, carbon intensity and price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from halcyon_cli.bench.options.group import option_group

if TYPE_CHECKING:
    from halcyon_measure.breakdown.energy import Prices
    from halcyon_measure.sampling.sampler import SamplingSettings, Source


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """Values of the options for sampling."""

    no_sampling: bool = False
    metrics_urls: Sequence[str] = ()
    balancer_metrics: Sequence[str] = ()
    prometheus: str = ""
    pods: str = ""
    carbon_intensity: float | None = None
    price_per_hour: float | None = None

    def settings(self) -> SamplingSettings | None:
        """Return the sampling settings; None if sampling is off.

        Raises:
            MeasureError: a URL is invalid.
        """
        from halcyon_measure.sampling.sampler import SamplingSettings  # noqa: PLC0415

        if self.no_sampling:
            return None
        namespace, _, pods = self.pods.rpartition("/")  # no name of a pod has a slash
        return SamplingSettings(
            servers=_sources(self.metrics_urls),
            balancers=_sources(self.balancer_metrics),
            prometheus=self.prometheus,
            namespace=namespace,
            pods=pods,
        ).check()

    def prices(self) -> Prices:
        """Return the given carbon intensity and price.

        Raises:
            MeasureError: a value is negative, not a number, or too large.
        """
        from halcyon_measure.breakdown.energy import Prices  # noqa: PLC0415

        return Prices(g_per_kwh=self.carbon_intensity, per_hour=self.price_per_hour).check()


sampling_options = option_group(
    "sampling",
    SamplingOptions,
    click.option(
        "--no-sampling",
        is_flag=True,
        help="Don't read the server's statistics and metrics beside the load.",
    ),
    click.option(
        "--metrics-url",
        "metrics_urls",
        multiple=True,
        metavar="URL",
        help="Metrics of a replica, for example http://10.0.0.7:8002/metrics. Default: Triton's port at the host of --url; for NAME, "
        "its pods.",
    ),
    click.option(
        "--balancer-metrics",
        "balancer_metrics",
        multiple=True,
        metavar="URL",
        help="Metrics of a balancer: of Halcyon's agent, for example http://10.0.0.9:9100/metrics, or of HAProxy. Default for NAME: its "
        "balancers'.",
    ),
    click.option(
        "--prometheus",
        default="",
        metavar="URL",
        help="Prometheus with DCGM's or Kepler's energy of the pods of --pods.",
    ),
    click.option(
        "--pods",
        default="",
        metavar="REGEX",
        help="Names of the server's pods in Prometheus, for example 'digits-.*' or 'team/digits-.*'. Default for NAME: its copy's.",
    ),
    click.option(
        "--carbon-intensity",
        type=float,
        metavar="G",
        help="Carbon dioxide of a kWh in grams, for mg an inference; for example 380. Default for NAME: the site's.",
    ),
    click.option(
        "--price-per-hour",
        type=float,
        metavar="PRICE",
        help="Price of the measured replicas an hour, for the cost of 1,000 inferences. Default for NAME: the site's.",
    ),
)


def _sources(urls: Sequence[str]) -> tuple[Source, ...]:
    from halcyon_measure.sampling.sampler import Source  # noqa: PLC0415

    return tuple(Source(pod=url.partition("://")[2].partition("/")[0] or url, url=url) for url in urls)
