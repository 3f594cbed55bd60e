"""All peers by name: their construction from `key=value` strings, and their grids of settings for a fair comparison.

Out of scope: Halcyon's own planner, which isn't a peer. Dynamo's planner and WVA's own signals are not included,
because they use the KV cache usage, which Triton doesn't have. Source: the project's facts on autoscaling, sections 3.4
and 3.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.policy_view import Policy
from halcyon_simulator.policies.peers.aibrix import Aibrix, AibrixKnobs
from halcyon_simulator.policies.peers.baseline import (
    Rate,
    RateKnobs,
    Sketch,
    SketchKnobs,
    Static,
    StaticKnobs,
    peak_count,
)
from halcyon_simulator.policies.peers.cortex import Cortex, CortexKnobs
from halcyon_simulator.policies.peers.hpa import (
    Hpa,
    HpaKnobs,
    Kserve,
    KserveKnobs,
    TritonGke,
    TritonGkeKnobs,
    TritonOnprem,
    TritonOnpremKnobs,
    Wva,
    WvaKnobs,
)
from halcyon_simulator.policies.peers.keda import Keda, KedaHttp, KedaHttpKnobs, KedaKnobs
from halcyon_simulator.policies.peers.knative import Kpa, KpaKnobs
from halcyon_simulator.policies.peers.kubeai import Kubeai, KubeaiKnobs
from halcyon_simulator.policies.peers.metrics import at_once
from halcyon_simulator.policies.peers.parameters import PolicyError, knob_text, parsed
from halcyon_simulator.policies.peers.ray import Ray, RayKnobs

K = TypeVar("K")
Params = dict[str, str]
"""Knobs as strings by name, as `build` accepts them."""

SHARES = (0.3, 0.5, 0.7, 0.85, 1.0)
"""Shares of a replica's capacity that every sweep uses as targets. Source: the project's facts on autoscaling, section
7.2."""


@dataclass(frozen=True)
class Peer(Generic[K]):
    """Entry of the list of peers."""

    about: str
    """Description in one line, for the list of policies."""
    knobs: type[K]
    make: Callable[[K, Case], Policy]
    grid: Callable[[Case], Iterable[Mapping[str, object]]]
    example: str
    """Example of valid parameters, for error messages."""


def build(name: str, params: Mapping[str, str], case: Case) -> Policy:
    """Return a new policy for one run of the case.

    Raises:
        PolicyError: the policy or a knob doesn't exist, or a value is invalid.
    """
    peer = _peer(name)
    policy: Policy = peer.make(parsed(name, peer.knobs, params, example=peer.example), case)
    return policy


def sweep(name: str, case: Case) -> list[Params]:
    """Return the grid of settings for a fair comparison: at most 15 points, each as parameters for `build`.

    It combines targets at `SHARES` of a replica's capacity with two or three of the peer's own windows. The peer's
    defaults may not be in the grid, so they should be run as well.

    Raises:
        PolicyError: the policy doesn't exist.
    """
    points = [tuple((key, knob_text(value)) for key, value in point.items()) for point in _peer(name).grid(case)]
    return [dict(point) for point in dict.fromkeys(points)]


def _peer(name: str) -> Peer[Any]:
    if name not in PEERS:
        raise PolicyError(f"there is no policy '{name}'; the policies are {', '.join(PEERS)}; for example kpa:target=8")
    return PEERS[name]


def _by_windows(*windows: Mapping[str, object]) -> Callable[[Case], list[Mapping[str, object]]]:
    """Return a function that creates a grid. It combines targets in requests in flight with each of the windows."""

    def grid(case: Case) -> list[Mapping[str, object]]:
        return _product("target", [share * at_once(case.service) for share in SHARES], windows)

    return grid


def _fixed(knob: str, values: Iterable[float], *windows: Mapping[str, object]) -> Callable[[Case], Any]:
    """Return a function that creates a grid.

    The grid combines targets that are the same for every case with each of the windows.
    """
    return lambda _: _product(knob, values, windows)


def _product(knob: str, values: Iterable[float], windows: Iterable[Mapping[str, object]]) -> list[Mapping[str, object]]:
    return [{knob: value, **window} for window in windows for value in values]


def _keda_http(case: Case) -> list[Mapping[str, object]]:
    requests = _product("target", [share * at_once(case.service) for share in SHARES], ({},))
    rates = [share * case.service.peak_rps for share in SHARES]
    return [*requests, *_product("target", rates, ({"metric": "rate"}, {"metric": "rate", "window_s": 15.0}))]


def _onprem(case: Case) -> list[Mapping[str, object]]:
    # Queue time isn't a share of the capacity, so the targets range from the sample's 50 us to half of the latency
    # objective.
    targets = [50.0, *(share * case.slo_s * 1e6 for share in (0.05, 0.15, 0.3, 0.5))]
    return _product("target_us", targets, ({}, {"window_s": 60.0}))


def _static(case: Case) -> list[Mapping[str, object]]:
    return [{"n": peak_count(case, utilisation=share)} for share in SHARES]


PERCENT = tuple(100 * share for share in SHARES)

PEERS: Mapping[str, Peer[Any]] = {
    "hpa": Peer(
        about="Kubernetes' HPA on requests in flight, waiting requests or GPU utilisation",
        knobs=HpaKnobs,
        make=Hpa,
        grid=_by_windows({}, {"behavior": "{}"}, {"behavior": "{}", "down_window_s": 60}),
        example="metric=inflight,target=4,behavior={}",
    ),
    "keda": Peer(
        about="KEDA with a Prometheus trigger: HPA from 1 on, its own loop between 0 and 1",
        knobs=KedaKnobs,
        make=Keda,
        grid=_by_windows({}, {"behavior": "{}", "down_window_s": 60}, {"metric": "queue"}),
        example="metric=queue,target=4,cooldown_period_s=60",
    ),
    "keda-http": Peer(
        about="KEDA's HTTP add-on: pending requests or their rate, held at 0",
        knobs=KedaHttpKnobs,
        make=KedaHttp,
        grid=_keda_http,
        example="target=4,scaledown_period_s=60",
    ),
    "kpa": Peer(
        about="Knative's pod autoscaler on concurrency, with its panic window",
        knobs=KpaKnobs,
        make=Kpa,
        grid=_fixed("target_percentage", PERCENT, {}, {"stable_window_s": 30.0}, {"stable_window_s": 120.0}),
        example="target=8,stable_window_s=30",
    ),
    "kubeai": Peer(
        about="KubeAI: mean of ten minutes of requests in flight",
        knobs=KubeaiKnobs,
        make=Kubeai,
        grid=_by_windows({}, {"time_window_s": 180.0}, {"time_window_s": 60.0}),
        example="target=4,time_window_s=60",
    ),
    "kserve": Peer(
        about="KServe's class hpa: utilisation 80 %, behavior {}",
        knobs=KserveKnobs,
        make=Kserve,
        grid=_fixed("target", PERCENT, {}, {"down_window_s": 60}, {"window_s": 60.0}),
        example="target=60,down_window_s=60",
    ),
    "wva-hpa": Peer(
        about="the HPA of WVA's chart, on requests in flight (WVA's KV signals do not apply to Triton)",
        knobs=WvaKnobs,
        make=Wva,
        grid=_by_windows({}, {"stabilization_window_s": 120}, {"stabilization_window_s": 30}),
        example="target=4,stabilization_window_s=60",
    ),
    "ray": Peer(
        about="Ray Serve: mean of 30 s, 30 s of delay up and 600 s down",
        knobs=RayKnobs,
        make=Ray,
        grid=_by_windows(
            {},
            {"downscale_delay_s": 120.0},
            {"look_back_period_s": 10.0, "upscale_delay_s": 5.0, "downscale_delay_s": 120.0},
        ),
        example="target=4,downscale_delay_s=120",
    ),
    "aibrix": Peer(
        about="AIBrix's APA: per-pod mean of 180 s times the present count (our reading)",
        knobs=AibrixKnobs,
        make=Aibrix,
        grid=_by_windows({}, {"stable_window_s": 60.0}, {"stable_window_s": 30.0, "scale_down_cooldown_s": 0.0}),
        example="target=4,stable_window_s=60",
    ),
    "cortex": Peer(
        about="Cortex: mean of a minute, small steps, stabilised for 60 s up and 300 s down",
        knobs=CortexKnobs,
        make=Cortex,
        grid=_by_windows(
            {},
            {"window_s": 30.0, "upscale_stabilization_period_s": 0.0},
            {"upscale_stabilization_period_s": 0.0, "downscale_stabilization_period_s": 120.0},
        ),
        example="target=4,upscale_stabilization_period_s=0",
    ),
    "triton-gke": Peer(
        about="Triton's GKE sample: HPA on duty cycle 85",
        knobs=TritonGkeKnobs,
        make=TritonGke,
        grid=_fixed("target", PERCENT, {}, {"window_s": 60.0}),
        example="target=70,cap=3",
    ),
    "triton-onprem": Peer(
        about="Triton's k8s-onprem sample: HPA on queue time, 50 us per request",
        knobs=TritonOnpremKnobs,
        make=TritonOnprem,
        grid=_onprem,
        example="target_us=50,cap=3",
    ),
    "static": Peer(
        about="a fixed count; by default what the busiest minute needs",
        knobs=StaticKnobs,
        make=Static,
        grid=_static,
        example="n=4",
    ),
    "rate": Peer(
        about="baseline: arrival rate over a replica's capacity",
        knobs=RateKnobs,
        make=Rate,
        grid=_fixed("utilisation", SHARES, {}, {"window_s": 10.0}, {"window_s": 60.0}),
        example="window_s=30,utilisation=0.7",
    ),
    "sketch": Peer(
        about="baseline: rate, backlog and trend, as in the first sketch",
        knobs=SketchKnobs,
        make=Sketch,
        grid=_fixed("utilisation", SHARES, {}, {"hold_s": 300.0}, {"window_s": 60.0}),
        example="utilisation=0.7,hold_s=300",
    ),
}
"""Peers in the order of section 7.3 of the project's facts on autoscaling, followed by the baselines."""
