"""Detection of models that keep state between requests (sequence_batching), and checks of their specs. Pure."""

# | the model's source | detected by                                                                        |
# | ------------------ | ---------------------------------------------------------------------------------- |
# | ConfigMap          | its config.pbtxt, before the first pod                                             |
# | any other          | the fetcher in the revision's first pod; the rollout record keeps the result       |

from __future__ import annotations

from halcyon.api.sequence_batching import REPORT, in_config
from halcyon.api.spec import Spec, defaults
from halcyon.control.objects import config_map_model, pods
from halcyon.control.rollout.rollout_record import RolloutRecord
from halcyon.control.state.scope import Scope
from halcyon.kube.kinds import Object
from halcyon.render import model_overlay, names, revision
from halcyon.render.revision import Revision


def keeps_state(scope: Scope, spec: Spec, requested: Revision) -> bool:
    """Return whether it is known that the model of this revision keeps state between requests."""
    if RolloutRecord.of(requested).sequences or any(
        pods.revision(pod) == requested.key and _has_sequences(pod) for pod in scope.pods
    ):
        return True
    content = scope.source.content
    served = model_overlay.model_name(scope.key.name, spec)
    configs = config_map_model.models(scope.key.name, spec, content).configs(served).values()
    if content is None or not any(in_config(text.decode(errors="replace")) for text in configs if text is not None):
        return False
    # Use it only if it belongs to this revision: if the spec was rejected, its source isn't the one that is served.
    return revision.key(scope.subject, spec, content) == requested.spec_key


def objection(scope: Scope, spec: Spec, requested: Revision) -> str:
    """Return an error message if a stateful model may have several replicas without stickiness, otherwise ""."""
    max_replicas = defaults.most_replicas(spec)
    if max_replicas <= 1 or spec.traffic.stickiness is not None or not keeps_state(scope, spec, requested):
        return ""
    field = "spec.scaling.maxReplicas" if spec.scaling is not None else "spec.replicas"
    return (
        f"the model's config.pbtxt has sequence_batching, but {field} is {max_replicas}. All requests of a "
        "sequence must reach the same pod, and balancers do not read the sequence ID in request bodies. Set "
        f"spec.traffic.stickiness: {{header: x-sequence-id}} and send this header with each request, or set {field}: 1"
    )


def with_allowed_replicas(scope: Scope, spec: Spec, requested: Revision) -> Spec:
    """Return the spec, limited to 1 replica if a model that keeps state between requests may not have several.

    No limit applies while pods of a stateless revision are ready, because it would remove the surplus pods all at once.
    """
    stateful = {requested.key, *(r.key for r in scope.revisions if RolloutRecord.of(r).sequences)}
    others = any(pods.is_ready(pod) and pods.revision(pod) not in stateful for pod in scope.pods)
    if others or not objection(scope, spec, requested):
        return spec
    if (scaling := spec.scaling) is not None:
        scaling = scaling.model_copy(update={"min_replicas": min(scaling.min_replicas, 1), "max_replicas": 1})
    return spec.model_copy(update={"replicas": min(spec.replicas, 1), "scaling": scaling})


def _has_sequences(pod: Object) -> bool:
    statuses = [status for status in pod["status"]["initContainerStatuses"] if status["name"] == names.FETCHER]
    ended = [(status["state"].get("terminated") or {}) for status in statuses]
    return any(end.get("exitCode") == 0 and end.get("message") == REPORT for end in ended)
