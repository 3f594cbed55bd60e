"""PromQL expressions of the dashboards. All panels use these functions, so that they select models in the same way."""

from __future__ import annotations

from typing import Final

from generators.monitoring.grafana import Variable
from halcyon.monitoring import operator_metrics, per_model_metrics
from halcyon.monitoring.metric import Metric

NAME: Final = "{{namespace}}/{{model_deployment}} {{cluster}}"
"""Legend with the name of a model, and the name of its cluster if the site has set one."""
_CLUSTER: Final = 'cluster=~"$cluster"'
_SELECTED: Final = f'{_CLUSTER},namespace=~"$namespace",model_deployment=~"$model"'
_OPERATOR: Final = f'{_CLUSTER},job=~"$job"'
REPLICA: Final = "{{instance}} {{cluster}}"
"""Legend with the address of a replica of the operator. Addresses of pods are unique only within a cluster."""
OF: Final = ("cluster", *per_model_metrics.OF)
"""Labels that identify a model. Without `clusterName` in the chart's values, no series has the label `cluster`."""
BY: Final = ", ".join(OF)

CLUSTER: Final = Variable("cluster", "Cluster", f"label_values({operator_metrics.LEADER.name}, cluster)")
NAMESPACE: Final = Variable(
    "namespace", "Namespace", f"label_values({per_model_metrics.CONDITION.name}{{{_CLUSTER}}}, namespace)"
)
MODELS: Final = Variable(
    "model",
    "Model",
    f'label_values({per_model_metrics.CONDITION.name}{{{_CLUSTER},namespace=~"$namespace"}}, model_deployment)',
)


def of(metric: Metric, matchers: str = "", *, end: str = "") -> str:
    """Return a selector for a metric of the selected models. `end` is a suffix of its name, for example `_bucket`."""
    return f"{metric.name}{end}{{{_matcher_list(_SELECTED, matchers)}}}"


def per_model(metric: Metric, *by: str, matchers: str = "") -> str:
    """Return a query for one value per model (and label in `by`), whichever operator replica exports it."""
    return f"max by ({', '.join((BY, *by))}) ({of(metric, matchers)})"


def total(metric: Metric, *by: str, matchers: str = "") -> str:
    """Return a query for the sum over pods, per model or per label in `by`."""
    return f"sum by ({', '.join(by or OF)}) ({of(metric, matchers)})"


def rate(metric: Metric, *by: str, matchers: str = "", end: str = "") -> str:
    """Return a query for the rate per second, summed over pods, per model or per label in `by`."""
    return f"sum by ({', '.join(by or OF)}) (rate({of(metric, matchers, end=end)}[$__rate_interval]))"


def quantile(share: float, metric: Metric) -> str:
    """Return a query for a quantile of a histogram, over all pods of a model."""
    return f"histogram_quantile({share:g}, {rate(metric, *OF, 'le', end='_bucket')})"


def operators(metric: Metric | str, matchers: str = "") -> str:
    """Return a selector for a metric of all operator replicas."""
    name = metric if isinstance(metric, str) else metric.name
    return f"{name}{{{_matcher_list(_OPERATOR, matchers)}}}"


def per_replica(metric: Metric) -> str:
    """Return a query for a value of each replica of the operator."""
    return f"max by (cluster, instance) ({operators(metric)})"


def per_cluster(metric: Metric) -> str:
    """Return a query for the sum over the clusters of a value that each replica of the operator exports."""
    return f"sum(max by (cluster) ({operators(metric)}))"


def operators_rate(metric: Metric | str, *by: str) -> str:
    """Return a query for the rate per second of an operator metric, summed over the replicas."""
    aggregation = f"sum by ({', '.join(by)})" if by else "sum"
    return f"{aggregation} (rate({operators(metric)}[$__rate_interval]))"


def operators_quantile(share: float, metric: Metric, window: str = "$__rate_interval") -> str:
    """Return a query for a quantile of an operator histogram, over the time range `window`."""
    return f"histogram_quantile({share:g}, sum by (le) (rate({operators(f'{metric.name}_bucket')}[{window}])))"


def _matcher_list(*matchers: str) -> str:
    return ",".join(part for part in matchers if part)
