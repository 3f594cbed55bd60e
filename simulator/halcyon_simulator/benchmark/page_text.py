"""Texts of the benchmark's page that do not depend on the runs."""

from __future__ import annotations

HEAD = """# Scaling: Halcyon and its peers

`make bench-scaling` writes this page from simulated runs. For the simulation and its scenarios (S1 to S12), see [the
simulator](../simulator.md). The file build/bench/scaling.json contains the figures on this page in machine-readable
form. Every figure is the mean of several runs of the same scenario with different random seeds. This page compares
Halcyon with other autoscalers (its peers). Each of the other autoscalers runs with its default settings and with many
combinations of its own settings. One setting differs from the defaults: the target of requests in flight for each
replica is a full batch, because the peers' own defaults ignore batches. All autoscalers receive the same signals.
Before a simulation starts, Halcyon is also given the start time of a pod and the time that a batch takes. In a cluster,
Halcyon measures the start time of a pod and the batch time on pods that started before the load. To simulate Halcyon
with a different initial estimate of a pod's start time, use `halcyon simulate` with a policy such as
`halcyon:start_s=60`.

| term | meaning |
|---|---|
| violations | requests that are answered later than the objective, rejected or never answered, in % |
| GPU time | time from when a pod holds a GPU until its release, divided by the same time of a clairvoyant schedule, which knows all arrivals |
| law: L1, L2 | service time model, which sets the time S(b) of a batch of b requests. L1: S(b) = 400 ms, at most 4 requests, objective 2.4 s. L2: S(b) = 80 + 8 b ms, at most 16 requests, objective 0.5 s |
| point | one policy with one setting |
| grid | the combinations of a peer's settings. They are simulated with fewer seeds: 3, or 1 on S4 and with the service time model L2 |
| nearest peer | the peer's point with the smallest distance. The distance is the larger of two ratios: the point's violations to Halcyon's, and its GPU time to Halcyon's |
| **win** | Halcyon is better than the nearest peer in one figure (violations or GPU time) and not worse in the other. The runs are compared seed by seed, and the 95 % confidence interval of the difference in the smaller figure excludes 0 |
| on the front | every peer's point is worse than Halcyon in at least one figure |
| level | a peer's point is on average at least as good as Halcyon in both figures, but not with 95 % confidence |
| behind | a peer's point is at least as good as Halcyon in both figures, with 95 % confidence |
| `halcyon` | the planner alone, behind a balancer that never rejects a request, like every peer |
| `halcyon+balancer` | Halcyon as it is **installed**. Its own balancer rejects a request on arrival if it can't be served by the deadline (in these runs, the latency objective), and a rejected request counts as a violation |
| baselines: `static`, `rate`, `sketch` | policies that no product uses (`static` knows the peak in advance). They are not peers, and run with at most 3 seeds and without a grid |
| seeds | the number of runs of Halcyon. Every point that a verdict depends on has as many. Points whose distance is more than 20 % larger than that of the nearest peer, and with the service time model L2 the peers' default settings, have only as many as the grid |

In the simulated runs, none of the other autoscalers has a balancer that rejects requests. The table compares two
variants of Halcyon (`halcyon` and `halcyon+balancer`) with the other autoscalers.
"""
"""Title of the page and the terms that its tables use."""
CHOSEN = (
    (
        "the significance of trends, the share of the headroom, the hysteresis band, the regret (two to five values each)",
        "S1, S2, S4, a day of S5, S6 and S8 together",
        "L1",
        "one or two",
        "-",
    ),
    (
        "seasons and spikes",
        "generated loads and two ServeGen traces",
        "-",
        "-",
        "-",
    ),
    (
        "estimating a step, damping forecast rises, predicting the height of a spike, extending the idle timeout",
        "S1, S2, S3, S3r, S6, S7 and S8",
        "mostly L1; L2 only for the height of spikes",
        "1 to 3",
        "0022",
    ),
    (
        "estimating a constant rate, the share of the headroom",
        "constant loads, S4, S5 and S9",
        "L1",
        "1 and 2",
        "0027",
    ),
    (
        "estimating a constant rate, the share of the headroom",
        "the other scenarios of the result table",
        "L1",
        "1 to 3",
        "0027",
    ),
)
"""Experiments with which constants of the planner were chosen, as rows of a table."""
