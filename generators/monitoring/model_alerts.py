"""Alerts about models. Out of scope: alerts about the operator itself (`operator_alerts`)."""

from __future__ import annotations

from typing import Final

from generators.monitoring import triton_metrics
from generators.monitoring.alert import (
    DIAGNOSE,
    EXPLAIN,
    MAX_CONNECTIONS_RATIO,
    MAX_ERROR_RATIO,
    MAX_LATENCY_RATIO,
    MAX_ROLLOUT_S,
    MAX_START,
    MIN_GPU_UTILIZATION,
    MODEL,
    Alert,
    field_of,
    message_of,
)
from generators.monitoring.promql import BY
from halcyon.monitoring import per_model_metrics
from halcyon.monitoring.agent_metrics import named
from halcyon.monitoring.metric import Metric


def _models(metric: Metric, matchers: str = "") -> str:
    """Return a query that has one series per model, without the other labels of the metric."""
    inner = f"__JOB__,{matchers}" if matchers else "__JOB__"
    return f"max by ({BY}) ({metric.name}{{{inner}}})"


def _rate(metric: Metric, matchers: str = "", *by: str) -> str:
    return f"sum by ({', '.join((BY, *by))}) (rate({metric.name}{f'{{{matchers}}}' if matchers else ''}[5m]))"


def _condition(matchers: str) -> str:
    return f"{_models(per_model_metrics.CONDITION, matchers)} > 0"


_AT_MAX: Final = _models(per_model_metrics.LIMITED, 'limit="max"')
_AT_OTHER_LIMIT: Final = _models(per_model_metrics.LIMITED, 'limit=~"quota|budget"')
_ON_MODEL: Final = f"on ({BY})"
_NEEDS_MORE: Final = (
    f"({_AT_MAX} == 1)\n"
    # Not the maximum of the spec: a schedule may set a lower one. Desired replicas are not in force while scaling is paused.
    f"and {_ON_MODEL} ({_models(per_model_metrics.SPEC_REPLICAS)} >= {_ON_MODEL} {_models(per_model_metrics.DESIRED)})\n"
    f"unless {_ON_MODEL} {_AT_OTHER_LIMIT}"
)
"""Query for models that run their maximum and need more. A quota or a budget doesn't allow even fewer."""
_QUEUE_IS_LONG: Final = (
    f"({_models(per_model_metrics.QUEUE)}\n"
    f"  > {_ON_MODEL} {_models(per_model_metrics.QUEUE_TARGET)} * {_ON_MODEL} clamp_min({_models(per_model_metrics.READY)}, 1))"
)
_REQUESTS: Final = named("requests_total")
_UNSERVED: Final = (
    f"({_rate(named('rejected_total'))} + {_rate(named('errors_total'))}\n"
    f"  + ({_rate(named('server_rejected_total'))} or 0 * {_rate(_REQUESTS)}))"
)
"""Query for the requests per second that the model didn't answer. If agents of an earlier version don't count requests
that servers reject, these count as 0."""
_IS_READY: Final = 'type="Ready",status="True"'
_NOT_READY: Final = 'type="Ready",status!="True"'
_NOT_LOADED: Final = 'type="ModelLoaded",status="False"'
_NOT_ACCEPTED: Final = 'type="Accepted",status="False"'
_IS_STALLED: Final = 'type="Stalled",status="True"'
_IS_HELD_UP: Final = 'type="Reconciling",reason=~"RolloutBlocked|DeploymentPaused"'
"""Reasons for which a rollout waits for a user before its deadline passes."""
_FEWER: Final = f"({_models(per_model_metrics.READY)} < {_ON_MODEL} {_models(per_model_metrics.SPEC_REPLICAS)})"
_IS_LIVE: Final = 'reason!~"Evicted|Other"'
"""Failures of pods that still exist. Objects of pods that have ended, for example evicted ones, may stay for days."""
_CANT_START: Final = (
    f"({_models(per_model_metrics.UNSCHEDULABLE)} > 0\n  or {_ON_MODEL} {_models(per_model_metrics.FAILED, _IS_LIVE)} > 0\n"
    f"  or {_ON_MODEL} {_models(per_model_metrics.REPLICAS)} < {_ON_MODEL} {_models(per_model_metrics.SPEC_REPLICAS)})"
)
"""Query for models of which a server pod is unschedulable, has failed or doesn't exist. Pods that only start are none of these."""
# Other Triton servers in the same Prometheus have no such label, and are none of Halcyon's.
_OURS: Final = 'model_deployment!=""'
_SUCCESSES: Final = _rate(triton_metrics.SUCCESS, _OURS, "model")
_FAILURES: Final = _rate(triton_metrics.FAILURE, f'{_OURS},reason!="CANCELED"', "model")
# By Triton's label `model`: in a sum, the steps of an ensemble and the models that a Python model calls would hide its failures.
_ERROR_RATIO: Final = f"max by ({BY}) ({_FAILURES}\n  / ({_SUCCESSES} + {_FAILURES}))"
_BUSY: Final = _rate(per_model_metrics.GPU_SECONDS, '__JOB__,state="busy"')
_MEASURED: Final = _rate(per_model_metrics.GPU_SECONDS, '__JOB__,state=~"busy|idle"')
_BUSY_SHARE: Final = f"{_BUSY}\n  / {_MEASURED}"
"""Query for the mean utilisation of a model's GPUs, 0 to 1, over the pods that report it; NaN if none does."""
_DURATIONS: Final = named("request_duration_seconds").name
_POD_FAILS: Final = 'type="RequestsFailing",status="True"'
_NO_ROUTES: Final = 'type="RoutesAccepted",status!="True"'
_HAS_BALANCERS: Final = 'type="BalancerReady",status="True",reason!="NoBalancer"'
_AGENTS: Final = f"max by ({BY}) ({named('haproxy_up').name})"
_TRITONS: Final = f"max by ({BY}) ({triton_metrics.SUCCESS.name}{{{_OURS}}})"
_EXPIRES: Final = f"min by ({BY}, key) ({named('certificate_expires_timestamp_seconds').name})"
_BATCH_BY: Final = f"{BY}, batch"
_BATCH: Final = "BatchInference {{ $labels.namespace }}/{{ $labels.batch }}"
_SHOW_BATCH: Final = "kubectl describe batchinference {{ $labels.batch }} -n {{ $labels.namespace }}"
_BATCH_WAITS_FOR: Final = (
    "Pending|ModelNotFound|ModelUnsuitable|ModelStopped|PolicyDenied|RunnerUnknown|NameConflict|Invalid"
)
"""Reasons of a BatchInference's condition Complete with which no row is processed until someone acts. `Waiting` isn't one of them:
users have precedence."""

_BATCH_STANDS: Final = f'type="Complete",status="False",reason=~"{_BATCH_WAITS_FOR}"'
_BATCH_MISSES: Final = 'type="OnTime",status="False"'


def _late(window: str) -> str:
    """Return a query that has a value if more requests than allowed missed the objective in the window."""
    buckets = f"sum by ({BY}, le) (rate({_DURATIONS}_bucket[{window}]))"
    slow = f"histogram_quantile(1 - {MAX_LATENCY_RATIO}, {buckets})"
    # Not `>`: if the quantile is above the highest bound of the histogram, this bound is returned.
    return f"{slow}\n  >= {_ON_MODEL} {_models(per_model_metrics.LATENCY_TARGET)}"


def _batches(matchers: str) -> str:
    return f"max by ({_BATCH_BY}) ({per_model_metrics.BATCH_CONDITION.name}{{__JOB__,{matchers}}}) > 0"


MODEL_ALERTS: Final = (
    Alert(
        "HalcyonModelNotReady",
        _condition(_NOT_READY),
        "10m",
        "critical",
        f"{MODEL} has not been ready for 10 minutes.",
        f"Critical: the requests of its clients fail, or wait in the balancer until they time out. Find the cause: {DIAGNOSE}",
        _models(per_model_metrics.CONDITION, 'type="Ready"'),
    ),
    Alert(
        "HalcyonServersMissing",
        f"{_FEWER}\nand {_ON_MODEL} {_models(per_model_metrics.CONDITION, _IS_READY)}\nand {_ON_MODEL} {_CANT_START}",
        "15m",
        "warning",
        f"{MODEL} has had fewer ready servers than replicas for 15 minutes, and a server can't start.",
        "Warning: its clients get slow or rejected responses if the load needs all replicas. "
        f"Show why a server can't start: {message_of('ServersReady')}",
        f"{_models(per_model_metrics.READY)} and {_ON_MODEL} {_models(per_model_metrics.SPEC_REPLICAS)}",
    ),
    Alert(
        "HalcyonSpecRejected",
        _condition(_NOT_ACCEPTED),
        "10m",
        "warning",
        f"The spec of {MODEL} has not been accepted for 10 minutes.",
        "Warning: its owner's change has no effect. Clients are served by the last accepted spec, if there is one. "
        f"Show the reason: {message_of('Accepted')}",
        _models(per_model_metrics.CONDITION, 'type="Accepted"'),
    ),
    Alert(
        "HalcyonModelLoadFailed",
        f"{_condition(_NOT_LOADED)}\nand {_ON_MODEL} {_models(per_model_metrics.CONDITION, _NOT_READY)}",
        "1m",
        "critical",
        f"Triton can't load {MODEL}, and no older revision serves.",
        f"Critical: the requests of its clients fail. Show Triton's error: {field_of('model.error')}",
        _models(per_model_metrics.CONDITION, 'type="ModelLoaded"'),
    ),
    Alert(
        "HalcyonModelAtMax",
        f"({_NEEDS_MORE})\nand {_ON_MODEL} {_QUEUE_IS_LONG}",
        "15m",
        "warning",
        f"{MODEL} needs more replicas than its maximum, and its queue is above the target.",
        f"Warning: its clients get slow responses; requests are rejected once the queue is full. Show the desired replicas: {EXPLAIN}",
        f"{_models(per_model_metrics.QUEUE)} and {_ON_MODEL} {_models(per_model_metrics.DESIRED)}",
    ),
    Alert(
        "HalcyonQueueLong",
        f"{_QUEUE_IS_LONG}\nunless {_ON_MODEL} ({_NEEDS_MORE})",
        "15m",
        "warning",
        f"The queue of {MODEL} has been above its target for 15 minutes, and its maximum is not the reason.",
        "Warning: its clients get slow responses; requests are rejected once the queue is full. Show what prevents more replicas, for "
        f"example a quota, a missing GPU or a pause: {EXPLAIN}",
        f"{_models(per_model_metrics.QUEUE)} and {_ON_MODEL} {_models(per_model_metrics.DESIRED)}",
    ),
    Alert(
        "HalcyonScalingInactive",
        _condition('type="ScalingActive",status="False",reason="HPAInactive"'),
        "10m",
        "warning",
        f"The HorizontalPodAutoscaler of {MODEL} can't scale, so its replicas don't follow the load.",
        "Warning: its clients get slow or rejected responses if the load rises beyond what the fast scale-up path adds. "
        f"Show the reason: {message_of('ScalingActive')}",
        _models(per_model_metrics.CONDITION, 'type="ScalingActive"'),
    ),
    Alert(
        "HalcyonMetricMissing",
        f"max by ({BY}, signal) ({per_model_metrics.SIGNAL_MISSING.name}{{__JOB__}}) == 1",
        "5m",
        "warning",
        f"The signal {{{{ $labels.signal }}}} of {MODEL} has been missing for 5 minutes.",
        "Warning: the model may not scale up, so its clients get slow or rejected requests if the load rises. "
        f"Find the cause: {EXPLAIN}",
        _models(per_model_metrics.SIGNAL_MISSING),
    ),
    Alert(
        "HalcyonErrorRatioHigh",
        f"{_ERROR_RATIO} > {MAX_ERROR_RATIO}",
        "5m",
        "critical",
        f"{{{{ $value | humanizePercentage }}}} of the requests to {MODEL}, or to another model in its pods, fail in Triton.",
        "Critical: its clients get errors. The dashboard Halcyon / Model shows the failures by reason. "
        f"Find the cause: {DIAGNOSE}",
        _ERROR_RATIO,
    ),
    Alert(
        "HalcyonPodRequestsFailing",
        f"{_condition(_POD_FAILS)}\nunless {_ON_MODEL} {_ERROR_RATIO} > {MAX_ERROR_RATIO}",
        "15m",
        "warning",
        f"All requests to a pod of {MODEL} fail, but fewer than {MAX_ERROR_RATIO} of the model's requests.",
        "Warning: clients whose requests reach this pod get errors, and it still gets requests. "
        f"Show the pod and the error: {message_of('RequestsFailing')}",
        _models(per_model_metrics.CONDITION, 'type="Ready"'),
    ),
    Alert(
        "HalcyonRequestsRejected",
        f"{_UNSERVED}\n  / {_rate(_REQUESTS)} > {MAX_ERROR_RATIO}",
        "5m",
        "critical",
        f"{{{{ $value | humanizePercentage }}}} of the requests of {MODEL} are rejected by its balancers or servers, or lost.",
        "Critical: its clients get errors (429, 503). "
        f"Show whether it needs more replicas, and what prevents them: {EXPLAIN}",
        f"{_UNSERVED}\n  / {_rate(_REQUESTS)}",
    ),
    Alert(
        "HalcyonLatencyObjectiveMissed",
        f"{_late('5m')}\nand {_ON_MODEL} {_late('1h')}",
        "5m",
        "warning",
        f"{MODEL} misses its latency objective: a share above {MAX_LATENCY_RATIO} of the responses takes longer; the slowest of the others take {{{{ $value | humanizeDuration }}}}.",
        "Warning: its clients get late responses, for an hour and still. Show whether it needs more replicas, and what prevents "
        f"them: {EXPLAIN}",
        f"histogram_quantile(1 - {MAX_LATENCY_RATIO}, sum by ({BY}, le) (rate({_DURATIONS}_bucket[5m])))\n"
        f"and {_ON_MODEL} {_models(per_model_metrics.LATENCY_TARGET)}",
    ),
    Alert(
        "HalcyonBalancerDegraded",
        f"max by ({BY}) ({named('degraded').name}) == 1\n"
        f"or {_ON_MODEL} max by ({BY}) ({named('endpoints_unplaced').name}) > 0\n"
        f"or {_ON_MODEL} min by ({BY}) ({named('haproxy_up').name}) == 0",
        "15m",
        "warning",
        f"A balancer of {MODEL} is degraded, or soon will be: for example, a certificate expires, a Secret is missing, or HAProxy does not respond.",
        "Warning: requests still succeed with the last valid configuration, but its clients can't connect once a certificate "
        f"has expired. Show the reason: {message_of('BalancerReady')}",
        f"max by ({BY}) ({named('degraded').name})",
    ),
    Alert(
        "HalcyonBalancerCrowded",
        f"max by ({BY}) ({named('connections_used_ratio').name}) > {MAX_CONNECTIONS_RATIO}",
        "5m",
        "warning",
        f"{{{{ $value | humanizePercentage }}}} of the connections of a balancer of {MODEL} are in use.",
        "Warning: new connections of the sources with the most are closed. The balancer stays in its Service, because its clients would "
        f"only move to the next one. Show whether it has enough balancers: {DIAGNOSE}",
        f"max by ({BY}) ({named('connections_used_ratio').name})",
    ),
    Alert(
        "HalcyonCertificateExpired",
        f"time() - {_EXPIRES} > 0",
        "1m",
        "critical",
        f"A certificate of {MODEL} (key {{{{ $labels.key }}}} of its Secret) expired {{{{ $value | humanizeDuration }}}} ago.",
        f"Critical: its clients can't connect. Show the Secret and the date: {message_of('BalancerReady')}",
        _AGENTS,
    ),
    Alert(
        "HalcyonRoutesRejected",
        # Without balancers, a model whose routes aren't accepted isn't ready: HalcyonModelNotReady fires.
        f"{_condition(_NO_ROUTES)}\nand {_ON_MODEL} {_models(per_model_metrics.CONDITION, _IS_READY)}",
        "10m",
        "critical",
        f"The Gateway doesn't route requests to {MODEL}.",
        "Critical: clients that connect to the Gateway get errors, or responses of another model. Clients of the Service are served. "
        f"Show the reason: {message_of('RoutesAccepted')}",
        _models(per_model_metrics.CONDITION, 'type="Ready"'),
    ),
    Alert(
        "HalcyonPodsNotScraped",
        f"({_models(per_model_metrics.CONDITION, _HAS_BALANCERS)}\n  unless {_ON_MODEL} {_AGENTS})\n"
        f"or {_ON_MODEL} ({_models(per_model_metrics.READY)} > 0\n  unless {_ON_MODEL} {_TRITONS})",
        "30m",
        "warning",
        f"Prometheus has no metrics of the balancers or of the servers of {MODEL}.",
        "Warning: no client is affected, but alerts on errors, rejected requests, latency and certificates of this model can't fire. "
        "Show what the monitors select: kubectl get podmonitors -A -l app.kubernetes.io/name=halcyon -o yaml",
        _models(per_model_metrics.CONDITION, 'type="BalancerReady"'),
    ),
    Alert(
        "HalcyonAutoscalerConflict",
        _condition('type="AutoscalerConflict",status="True"'),
        "5m",
        "warning",
        f"Another autoscaler, user or tool changes the replicas of {MODEL}; Halcyon has stopped scaling it.",
        "Warning: its clients are affected only if the other writer keeps too few replicas. "
        f"Show the other writer: {EXPLAIN}",
        _models(per_model_metrics.CONDITION, 'type="ScalingActive"'),
    ),
    Alert(
        "HalcyonRolloutBlocked",
        # A model that isn't ready has no old revision that serves: HalcyonModelNotReady fires.
        f"({_condition(_IS_STALLED)}\n  or {_ON_MODEL} {_condition(_IS_HELD_UP)})\n"
        f"unless {_ON_MODEL} {_models(per_model_metrics.CONDITION, _NOT_ACCEPTED)}\n"
        f"and {_ON_MODEL} {_models(per_model_metrics.CONDITION, _IS_READY)}",
        "10m",
        "warning",
        f"The new revision of {MODEL} is not served: its rollout is blocked, has failed or was rolled back.",
        f"Warning: its owner's change has no effect; clients are still served by the old revision. Find the cause: {DIAGNOSE}",
        _models(per_model_metrics.CONDITION),
    ),
    Alert(
        "HalcyonRolloutLong",
        f"time() - {_models(per_model_metrics.ROLLOUT_START)} > {MAX_ROLLOUT_S}",
        "5m",
        "warning",
        f"A rollout of {MODEL} has been in progress for more than a day.",
        "Warning: a part of the requests or none is served by the new revision. A canary waits for a person, or for requests to compare. "
        f"Show what it waits for: {field_of('rollout.message')}",
        _models(per_model_metrics.CONDITION),
    ),
    Alert(
        "HalcyonColdStartSlow",
        f"({_models(per_model_metrics.START)} > {MAX_START})\nand {_ON_MODEL} (time() - {_models(per_model_metrics.START_TIME)} < 3600)",
        "0m",
        "warning",
        f"A server pod of {MODEL} took {{{{ $value | humanizeDuration }}}} to become ready; the limit is {MAX_START} s.",
        "Warning: its clients wait that long for the first response at zero replicas, and for new replicas when the load rises. "
        f"Show the pod, and how long the pull, the fetch and the load took: {field_of('coldStart')}",
        f"{_models(per_model_metrics.START)} and {_ON_MODEL} {_models(per_model_metrics.START_TIME)}",
    ),
    Alert(
        "HalcyonGPUIdle",
        # Not halcyon_model_gpu_utilization_ratio, which models without spec.scaling don't have.
        f"({_BUSY_SHARE} < {MIN_GPU_UTILIZATION})\nand {_ON_MODEL} ({_models(per_model_metrics.GPUS)} > 0)",
        "1h",
        "info",
        f"The GPUs of {MODEL} have been idle for an hour.",
        "Info: no client is affected, but the GPUs are paid for. Lower spec.scaling.minReplicas (spec.replicas if scaling is not set); with 0 and idleTimeout, the model "
        "releases its GPUs when idle and starts again with the next request.",
        f"{_BUSY_SHARE}\nand {_ON_MODEL} {_models(per_model_metrics.GPUS)}",
    ),
    Alert(
        "HalcyonOperatorConflict",
        _condition('type="OperatorConflict",status="True"'),
        "15m",
        "warning",
        f"Two Halcyon releases watch the namespace of {MODEL}.",
        "Warning: no client is affected while the release in status.operator works, but this release does nothing for the model. "
        f"Show both: {message_of('OperatorConflict')}",
        _models(per_model_metrics.CONDITION, 'type="Ready"'),
    ),
    Alert(
        "HalcyonBatchFailed",
        _batches('type="Failed",status="True"'),
        "1m",
        "warning",
        f"{_BATCH} has failed.",
        f"Warning: rows without a result stay without one until it is resumed; users of the model aren't affected. Show the reason: {_SHOW_BATCH}",
        _models(per_model_metrics.CONDITION, 'type="Ready"'),
    ),
    Alert(
        "HalcyonBatchLate",
        f"({_batches(_BATCH_STANDS)})\nor on ({_BATCH_BY}) ({_batches(_BATCH_MISSES)})",
        "30m",
        "warning",
        f"{_BATCH} has not processed rows for 30 minutes, or will miss its deadline.",
        f"Warning: its results will be late; users of the model aren't affected. Show what it waits for: {_SHOW_BATCH}",
        _models(per_model_metrics.CONDITION, 'type="Ready"'),
    ),
)
