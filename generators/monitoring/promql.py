"""PromQL of the dashboards: series of the selected models. It is in one place, so that every panel selects in the same way."""

from __future__ import annotations

from typing import Final

from generators.monitoring.grafana import Variable
from halcyon.monitoring import per_model_metrics
from halcyon.monitoring.metric import Metric

NAME: Final = "{{namespace}}/{{model_deployment}}"
"""Legend of a model."""
_SELECTED: Final = 'namespace=~"$namespace",model_deployment=~"$model"'
_OPERATOR: Final = 'job=~"$job"'

NAMESPACE: Final = Variable("namespace", "Namespace", f"label_values({per_model_metrics.CONDITION.name}, namespace)")
MODELS: Final = Variable(
    "model", "Model", f'label_values({per_model_metrics.CONDITION.name}{{namespace=~"$namespace"}}, model_deployment)'
)


def of(metric: Metric, matchers: str = "", *, end: str = "") -> str:
    """Return the selected series of a metric; `end` is a suffix of the name, for example `_bucket`."""
    return f"{metric.name}{end}{{{_joined(_SELECTED, matchers)}}}"


def per_model(metric: Metric, *by: str, matchers: str = "") -> str:
    """Return a query for one value per model (and `by`), regardless of the operator replica that exports it."""
    return f"max by ({', '.join((per_model_metrics.BY, *by))}) ({of(metric, matchers)})"


def total(metric: Metric, *by: str, matchers: str = "") -> str:
    """Return a query for the sum over pods, per model unless `by` is given."""
    return f"sum by ({', '.join(by or per_model_metrics.OF)}) ({of(metric, matchers)})"


def rate(metric: Metric, *by: str, matchers: str = "", end: str = "") -> str:
    """Return a query for the rate per second, summed over pods, per model unless `by` is given."""
    return f"sum by ({', '.join(by or per_model_metrics.OF)}) (rate({of(metric, matchers, end=end)}[$__rate_interval]))"


def quantile(share: float, metric: Metric) -> str:
    """Return a query for a quantile of a histogram over the pods of a model."""
    return f"histogram_quantile({share:g}, {rate(metric, *per_model_metrics.OF, 'le', end='_bucket')})"


def operators(metric: Metric | str, matchers: str = "") -> str:
    """Return the operator's own series of every replica."""
    name = metric if isinstance(metric, str) else metric.name
    return f"{name}{{{_joined(_OPERATOR, matchers)}}}"


def operators_rate(metric: Metric | str, *by: str) -> str:
    """Return a query for the operator's rate per second, summed over its replicas."""
    aggregation = f"sum by ({', '.join(by)})" if by else "sum"
    return f"{aggregation} (rate({operators(metric)}[$__rate_interval]))"


def operators_quantile(share: float, metric: Metric, over: str = "$__rate_interval") -> str:
    """Return a query for a quantile of one of the operator's histograms, over the range `over`."""
    return f"histogram_quantile({share:g}, sum by (le) (rate({operators(f'{metric.name}_bucket')}[{over}])))"


def _joined(*matchers: str) -> str:
    return ",".join(part for part in matchers if part)
