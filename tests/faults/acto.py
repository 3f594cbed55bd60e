"""Mutations of specs on a running operator, in waves of models that are each changed at once.

property       meaning
consistency    a spec that the API server accepts is in force or refused within a bound, and the status says which
message        a refusal names the field; a change of a field changes an object or a condition, unless the operator acts by it alone
recovery       the objects are those of the beginning again after a change and its reversal
path           the objects after a change are those of a model that was created so

The models have 0 replicas, so their pods don't cost time; a change of the pods' template is seen all the same.
"""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from halcyon.kube import kinds
from tests.faults import mutations
from tests.faults.forks import ForkedOperator
from tests.faults.ledger import Ledger
from tests.faults.mutations import Mutation
from tests.faults.oracles import Object, canonical, differences
from tests.faults.rest import REST_S, has_empty_queues, unsettled
from tests.faults.results import Result
from tests.integration.operator_space import Space, deployment
from tests.integration.waiting import PATIENCE

ACTING: Mapping[str, str] = {
    "scaling": "the operator decides the replicas by it, and no object has it",
    "rollout": "the operator replaces pods by it, at the next revision",
}
"""Prefixes of fields whose effect is a later decision, which a model without load or rollout doesn't show."""
LIVENESS_S = 20.0
_SETTLE_S = 1.0
"""Time without a change of any object after which a wave is complete, in seconds."""
_SETTLE_LIMIT_S = 2 * REST_S
"""Time after the last model's status is current and the pods have settled, after which a wave is complete although objects change or
models are scheduled: GPU times are published again and again, and counts of pods in a status may wait, longer on a busy machine."""
_HASH = re.compile(r"\b[0-9a-f]{10}\b|\bHASH\d+\b")
"""Hashes of names, and the numbers of a Deployment's revisions, which count its changes as generations do."""
_HISTORY = {"ControllerRevision"}
"""Kinds that keep former specs on purpose, as immutable ConfigMaps do, and so differ after a change and its reversal."""


@dataclass
class Trial:
    """One mutation with its model."""

    mutation: Mutation
    name: str
    begin: Object
    problems: list[str] = field(default_factory=list)


Snapshot = dict[str, Any]


def dry_run(space: Space, candidates: Sequence[Mutation]) -> tuple[dict[str, Result], list[Mutation]]:
    """Create each changed spec as a dry run.

    Returns the results of those that the API server refuses, by the mutation's id and without the commit, and the others.
    """
    results, accepted = {}, []
    for mutation in candidates:
        spec = mutations.changed(mutations.begin(mutation.path), mutation.path, mutation.value)
        answer = space.try_apply(deployment_of("dry", spec), dry=True)
        if answer.status in {200, 201}:
            accepted.append(mutation)
            continue
        message = str((answer.body or {}).get("message", ""))
        results[mutation.id] = Result(False, unnamed(mutation, message or f"status {answer.status}"), "")
    return results, accepted


def unnamed(mutation: Mutation, message: str) -> list[str]:
    """Return a problem if a refusal names neither the field nor the one that it is in."""
    parts = [part for part in mutation.path.split(".") if part != mutations.ITEM]
    if any(part in message for part in parts[-2:]):
        return []
    return [f"refused without the field's name: {message[:300]}"]


class OperatorEndedError(Exception):
    """The operator has ended, for example because it could not renew its lease on a busy machine; the text is the end of its log."""


class Wave:
    """Mutations that the API server accepts and that are made at once, each on a model of its own, in one namespace."""

    def __init__(self, space: Space, ledger: Ledger, operator: ForkedOperator, accepted: Sequence[Mutation]) -> None:
        self._space, self._ledger, self._operator = space, ledger, operator
        self._trials = [
            Trial(mutation, f"x{number:03}x", mutations.begin(mutation.path))
            for number, mutation in enumerate(accepted)
        ]

    def run(self) -> dict[str, Result]:
        """Run the trials, and return their results by the mutation's id, without the commit.

        Raises:
            OperatorEndedError: the operator has ended.
        """
        for trial in self._trials:
            self._must_apply(trial, trial.name, trial.begin)
        self._wait()
        before = self._snapshots()
        for trial in self._trials:
            changed = mutations.changed(trial.begin, trial.mutation.path, trial.mutation.value)
            self._must_apply(trial, trial.name, changed)
            self._must_apply(trial, f"s{trial.name}", changed)
        self._wait()
        during = self._snapshots()
        for trial in self._trials:
            if {trial.name, f"s{trial.name}"} <= during.keys():
                self._check_messages(trial, before[trial.name], during[trial.name])
                self._check_path(trial, during[trial.name], during[f"s{trial.name}"])
            self._must_apply(trial, trial.name, trial.begin)
        self._wait()
        after = self._snapshots()
        for trial in self._trials:
            lines = differences(current(after[trial.name]), current(before[trial.name]))
            trial.problems += [f"recovery: {line}" for line in lines[:3]]
        return {t.mutation.id: Result(True, t.problems, "") for t in self._trials}

    def _must_apply(self, trial: Trial, name: str, spec: Object) -> None:
        answer = self._space.try_apply(deployment_of(name, spec))
        if answer.status not in {200, 201}:
            trial.problems.append(f"the API server refuses {name}: {(answer.body or {}).get('message')}")

    def _wait(self) -> None:
        """Wait until each model's status is about its current generation, the pods have settled, and nothing changes."""
        late, _ = self._until_settled(self._late_models)
        for trial in self._trials:
            if {trial.name, f"s{trial.name}"} & set(late):
                trial.problems.append(f"consistency: the status isn't about the current spec after {LIVENESS_S:g} s")
        # Controllers of Kubernetes create and delete pods, which takes time on a busy machine and is no property of the operator.
        _, settled_at = self._until_settled(self._unsettled_pods)
        while time.monotonic() < settled_at + _SETTLE_LIMIT_S:
            still = time.monotonic() > self._ledger.changed_at([self._space.namespace]) + _SETTLE_S
            if still and has_empty_queues(self._operator):
                return
            time.sleep(0.2)

    def _until_settled(self, pending: Callable[[], list[str]]) -> tuple[list[str], float]:
        """Wait until `pending` returns no names; return its names at the limit of time, and the monotonic time in seconds.

        Raises:
            OperatorEndedError: the operator has ended.
        """
        end = time.monotonic() + LIVENESS_S * PATIENCE
        while (names := pending()) and time.monotonic() < end:
            if self._operator.process is None or self._operator.process.poll() is not None:
                raise OperatorEndedError(self._operator.tail())
            time.sleep(0.1)
        return names, time.monotonic()

    def _late_models(self) -> list[str]:
        """Return the names of the models whose status isn't about their current generation."""
        return [m["metadata"]["name"] for m in self._space.every(kinds.MODEL_DEPLOYMENT) if not _observed(m)]

    def _unsettled_pods(self) -> list[str]:
        return unsettled(self._space.every(kinds.DEPLOYMENT), self._space.every(kinds.POD))

    def _snapshots(self) -> dict[str, Snapshot]:
        """Return the objects of each model, with its conditions, by the model's name."""
        objects: dict[str, list[tuple[str, Object]]] = {}
        for kind, obj in self._ledger.objects([self._space.namespace])[self._space.namespace]:
            owner = _owner(obj) if kind != kinds.MODEL_DEPLOYMENT.kind else obj["metadata"]["name"]
            if owner:
                objects.setdefault(owner, []).append((kind, obj))
        snapshots = {}
        for name, owned in objects.items():
            text = json.dumps(owned).replace(name, "MODEL")
            named = [(kind, obj) for kind, obj in json.loads(text)]
            snapshots[name] = canonical(named, self._space.namespace)
        return snapshots

    @staticmethod
    def _check_messages(trial: Trial, before: Snapshot, during: Snapshot) -> None:
        conditions = _conditions(during)
        accepted = next((c for c in conditions if c["type"] == "Accepted"), {})
        if accepted.get("status") == "False":
            trial.problems += unnamed(trial.mutation, accepted["message"])
            return
        if _effects(before) != _effects(during) or _same_in_force(before, during):
            return
        messages = " ".join(condition["message"] for condition in conditions)
        acts = trial.mutation.path.partition(".")[0] in ACTING
        if not acts and f"spec.{trial.mutation.path.replace('.[]', '')}" not in messages:
            trial.problems.append("silent: no object and no condition differs, and the field acts nowhere else")

    @staticmethod
    def _check_path(trial: Trial, changed: Snapshot, scratch: Snapshot) -> None:
        """Compare with a model that was created with the changed spec, unless the change was refused: that keeps the last good spec."""
        if any(c["type"] == "Accepted" and c["status"] == "False" for c in _conditions(changed)):
            return
        lines = differences(current(changed), current(scratch))
        trial.problems += [f"path: {line}" for line in lines[:3]]


def deployment_of(name: str, spec: Object) -> Object:
    """Return a ModelDeployment with this spec, but for the name of its Gateway and hostnames.

    Those that aren't mutated have the model's name, because models that claim the same requests are in conflict.
    """
    document = {**deployment(name), "spec": copy.deepcopy(spec)}
    if gateway := (document["spec"].get("traffic") or {}).get("gateway"):
        if gateway.get("name") == mutations.GATEWAY["name"]:
            gateway["name"] += f"-{name}"
        for protocol in ("http", "grpc"):
            routes = gateway.get(protocol) or {}
            if routes.get("hostnames") == mutations.GATEWAY[protocol]["hostnames"]:
                routes["hostnames"] = [f"{name}.{hostname}" for hostname in routes["hostnames"]]
    return document


def _observed(model: Object) -> bool:
    status = model.get("status") or {}
    return bool(status.get("conditions")) and status.get("observedGeneration") == model["metadata"]["generation"]


def _owner(obj: Object) -> str:
    labels = obj["metadata"].get("labels") or {}
    return str(labels.get("serving.halcyon.dev/model-deployment", ""))


def _model(snapshot: Snapshot) -> Object:
    model: Object = snapshot["ModelDeployment MODEL"][0]
    return model


def _conditions(snapshot: Snapshot) -> list[dict[str, str]]:
    return list((_model(snapshot).get("status") or {}).get("conditions") or ())


def _same_in_force(before: Snapshot, during: Snapshot) -> bool:
    """Return whether the API server's defaults have made both specs the same."""
    return bool(_model(before)["spec"] == _model(during)["spec"])


def _effects(snapshot: Snapshot) -> Any:
    """Return the visible effects of a spec: the objects without the copy of the spec, and the conditions' messages.

    Names of revisions are a part of it: the files of a revision are in an immutable ConfigMap, which isn't compared.
    """
    objects = _current_objects(snapshot)
    model = objects.pop("ModelDeployment MODEL")[0]
    conditions = [(c["type"], c["status"], c["reason"], c["message"]) for c in model["status"].get("conditions", ())]
    text = json.dumps(objects)
    return text, conditions


def current(snapshot: Snapshot) -> Snapshot:
    """Return the objects without former specs, counters of changes, and copies of the spec.

    Former specs are revisions, immutable ConfigMaps, and ReplicaSets of a Deployment but for the newest.
    """
    # Names of revisions contain hashes of the model's name too.
    objects: Snapshot = _without_hashes(_current_objects(snapshot))
    return objects


def _without_hashes(value: Any) -> Any:  # any JSON value
    """Return a value without hashes in its texts and keys. A number may have as many digits as a hash."""
    if isinstance(value, dict):
        return {_HASH.sub("HASH", key): _without_hashes(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_without_hashes(entry) for entry in value]
    return _HASH.sub("HASH", value) if isinstance(value, str) else value


def _current_objects(snapshot: Snapshot) -> Snapshot:
    objects_of_now = {k: v for k, v in snapshot.items() if k.split()[0] not in _HISTORY and not v[0].get("immutable")}
    objects_of_now |= {
        k: [max(v, key=_revision_number)] for k, v in objects_of_now.items() if k.split()[0] == "ReplicaSet"
    }
    stripped: Snapshot = json.loads(json.dumps(objects_of_now))
    for key, objects in stripped.items():
        for obj in objects:
            _strip(key.split()[0], obj)
    return stripped


def _revision_number(replica_set: Object) -> int:
    return int(replica_set["metadata"]["annotations"]["deployment.kubernetes.io/revision"])


def _strip(kind: str, obj: Object) -> None:
    obj["metadata"].pop("generation", None)
    # The Deployment controller changes max-replicas only when it scales, so a new strategy leaves the former number.
    for counter in ("revision", "revision-history", "max-replicas"):
        obj["metadata"].get("annotations", {}).pop(f"deployment.kubernetes.io/{counter}", None)
    obj.get("data", {}).pop("accepted.json", None)
    status = obj.get("status") or {}
    status.pop("observedGeneration", None)
    if kind != "ModelDeployment":
        obj.pop("status", None)
    for condition in status.get("conditions", ()):
        condition.pop("observedGeneration", None)
    # A measurement of GPU time, which is published some seconds after the pods.
    status.pop("cost", None)
    status.pop("rollout", None)
    status.pop("revision", None)
