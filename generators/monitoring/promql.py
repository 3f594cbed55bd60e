"""PromQL of the dashboards: series of the models that a reader has chosen. One place, so that every panel chooses alike."""

from __future__ import annotations

from typing import Final

from generators.monitoring.grafana import Variable
from halcyon.monitoring import per_model_metrics
from halcyon.monitoring.metric import Metric

NAME: Final = "{{namespace}}/{{model_deployment}}"
"""A legend."""
_CHOSEN: Final = 'namespace=~"$namespace",model_deployment=~"$model"'
_OURS: Final = 'job=~"$job"'

NAMESPACE: Final = Variable("namespace", "Namespace", f"label_values({per_model_metrics.CONDITION.name}, namespace)")
MODELS: Final = Variable(
    "model", "Model", f'label_values({per_model_metrics.CONDITION.name}{{namespace=~"$namespace"}}, model_deployment)'
)


def of(metric: Metric, matchers: str = "", *, end: str = "") -> str:
    """The chosen series of a metric; `end` is added to the name, as `_bucket`."""
    return f"{metric.name}{end}{{{_joined(_CHOSEN, matchers)}}}"


def most(metric: Metric, *by: str, matchers: str = "") -> str:
    """One value per model (and `by`), whichever replica of the operator tells it."""
    return f"max by ({', '.join((per_model_metrics.BY, *by))}) ({of(metric, matchers)})"


def total(metric: Metric, *by: str, matchers: str = "") -> str:
    """Added up over pods; per model where `by` is left out."""
    return f"sum by ({', '.join(by or per_model_metrics.OF)}) ({of(metric, matchers)})"


def rate(metric: Metric, *by: str, matchers: str = "", end: str = "") -> str:
    """Per second, added up over pods; per model where `by` is left out."""
    return f"sum by ({', '.join(by or per_model_metrics.OF)}) (rate({of(metric, matchers, end=end)}[$__rate_interval]))"


def quantile(share: float, metric: Metric) -> str:
    """Of a histogram, over the pods of a model."""
    return f"histogram_quantile({share:g}, {rate(metric, *per_model_metrics.OF, 'le', end='_bucket')})"


def operators(metric: Metric | str, matchers: str = "") -> str:
    """The operator's own series, of every replica."""
    name = metric if isinstance(metric, str) else metric.name
    return f"{name}{{{_joined(_OURS, matchers)}}}"


def operators_rate(metric: Metric | str, *by: str) -> str:
    """Per second, of every replica together."""
    summed = f"sum by ({', '.join(by)})" if by else "sum"
    return f"{summed} (rate({operators(metric)}[$__rate_interval]))"


def operators_quantile(share: float, metric: Metric, over: str = "$__rate_interval") -> str:
    """Of a histogram of the operator's, over so long."""
    return f"histogram_quantile({share:g}, sum by (le) (rate({operators(f'{metric.name}_bucket')}[{over}])))"


def _joined(*matchers: str) -> str:
    return ",".join(part for part in matchers if part)
