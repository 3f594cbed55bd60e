"""Options for the place of a measurement in the cluster: the copy of the model, the client, and their resources."""

from __future__ import annotations

from dataclasses import dataclass

import click

from halcyon.api.types import quantity
from halcyon_cli.arguments.options import DURATION
from halcyon_cli.bench.options.group import option_group
from halcyon_cli.errors import InputError

_START_S = 600.0


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """Values of the options for the place."""

    live: bool = False
    trial: bool = False
    replicas: int = 1
    cold_start: int = 0
    near: str | None = None
    client_cpu: str = "1"
    client_memory: str = "1Gi"
    bench_image: str = ""
    priority_class: str = ""
    volume: str = ""
    start_timeout: float = _START_S
    teach: bool = False

    def check(self) -> PlaceOptions:
        """Return these options after checking them.

        Raises:
            InputError: a quantity is invalid, or two options contradict each other.
        """
        for option, text, low, example in (
            ("--client-cpu", self.client_cpu, "100m", "2"),
            ("--client-memory", self.client_memory, "256Mi", "2Gi"),
        ):
            try:
                valid = quantity(text) >= quantity(low)
            except ValueError:
                valid = False
            if not valid:
                raise InputError(
                    f"{option} is {text}; it must be a quantity of at least {low}, for example {option} {example}"
                )
        if self.trial:
            conflicting = [
                option
                for option, is_set in (
                    ("--live", self.live),
                    (f"--replicas {self.replicas}", self.replicas != 1),
                    (f"--cold-start {self.cold_start}", self.cold_start),
                    (f"--near {self.near}", self.near),
                )
                if is_set
            ]
            if conflicting:
                raise InputError(
                    f"--trial measures one pod, with its client in it; leave out {' and '.join(conflicting)}"
                )
        if self.cold_start and (self.live or self.replicas != 1):
            raise InputError(
                f"--cold-start {self.cold_start} watches the starts of a copy with one replica; leave out "
                + ("--live" if self.live else f"--replicas {self.replicas}")
            )
        if self.live and self.replicas != 1:
            raise InputError(
                f"--replicas {self.replicas} is for a copy, and --live measures the served pods; leave one of them out"
            )
        if self.live and self.teach:
            raise InputError("--teach is for a copy, of which the capacity is searched; leave out --live")
        return self


place_options = option_group(
    "place",
    PlaceOptions,
    click.option("--live", is_flag=True, help="Measure the served model itself, within a guard, instead of a copy."),
    click.option(
        "--trial", is_flag=True, help="Measure a pod with the model's server and the client in it, without a balancer, instead of a copy."
    ),
    click.option(
        "--replicas", type=click.IntRange(1, 100), default=PlaceOptions.replicas, metavar="N", help="Replicas of the copy. Default: 1."
    ),
    click.option(
        "--cold-start",
        type=click.IntRange(0, 20),
        default=PlaceOptions.cold_start,
        metavar="N",
        help="Watch N starts of the copy before the load. Default: 0.",
    ),
    click.option(
        "--near",
        type=click.Choice(("node", "zone", "any")),
        help="Preferred place of the client: the node or the zone of the measured pods, or any. Default: zone.",
    ),
    click.option("--client-cpu", default=PlaceOptions.client_cpu, metavar="N", help="CPU of the client's pod. Default: 1."),
    click.option(
        "--client-memory", default=PlaceOptions.client_memory, metavar="N", help="Memory of the client's pod. Default: 1Gi."
    ),
    click.option("--bench-image", default="", metavar="IMAGE", help="Image of the client. Default: the site's."),
    click.option(
        "--priority-class", default="", metavar="NAME", help="PriorityClass of the copy and the client. Default: the site's lowest."
    ),
    click.option(
        "--volume", default="", metavar="CLAIM", help="PersistentVolumeClaim with inputs, mounted at /data of the client."
    ),
    click.option(
        "--start-timeout",
        type=DURATION,
        default=PlaceOptions.start_timeout,
        metavar="TIME",
        help="Longest wait for the copy, and for the client. Default: 10m.",
    ),
    click.option(
        "--teach", is_flag=True, help="Write the result into the ConfigMap NAME-capacity, with which the autoscaler begins."
    ),
)  # fmt: skip
