"""`spec.runtime.placement`: the nodes that pods run on, with the types of core/v1.

A pod affinity covers the ModelDeployment's own namespace only: `namespaces` and `namespaceSelector` are left out.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from halcyon.api.types import DnsName, Documented, LabelKey, LabelValue, ListMap, Rule


class Toleration(Documented):
    """A taint that the pods tolerate."""

    key: LabelKey
    """Key of the taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Comparison with the taint: `Equal` requires the same value, `Exists` accepts any value. Default: Equal."""
    value: LabelValue | None = None
    """Value of the taint. Only for operator `Equal`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Default: every effect."""

    rules: ClassVar = (
        Rule(
            cel="self.operator != 'Exists' || !has(self.value)",
            check=lambda m: m.operator != "Exists" or m.value is None,
            message=(
                "spec.runtime.placement.tolerations: {key} has operator Exists and a value; remove the "
                "value, or set operator: Equal"
            ),
        ),
    )


class _Requirement(Documented):
    key: LabelKey
    """Key of the label that the condition is about."""
    values: Annotated[tuple[LabelValue, ...], Field(min_length=1, max_length=32)] | None = None
    """Values with which the label's value is compared. `In` and `NotIn` need 1 to 32 values; `Exists` and
    `DoesNotExist` take none. Default: none."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.values) != (self.operator in ['Exists', 'DoesNotExist'])",
            check=lambda m: (m.values is not None) != (m.operator in {"Exists", "DoesNotExist"}),
            message=(
                "spec.runtime.placement: the expression for the label {key} has operator {operator}; Exists and "
                "DoesNotExist take no values, the others need them; for example {{key: pool, operator: In, values: [gpu]}}"
            ),
        ),
    )


class PodRequirement(_Requirement):
    """A condition on a label of a pod."""

    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the value of the pod's label is compared with `values`."""


class NodeRequirement(_Requirement):
    """A condition on a label of a node."""

    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How the value of the node's label is compared with `values`. `Gt` and `Lt` compare integers, with one value."""

    rules: ClassVar = (
        *_Requirement.rules,
        Rule(
            cel="!(self.operator in ['Gt', 'Lt']) || !has(self.values) || "
            "(self.values.size() == 1 && self.values[0].matches('^[0-9]+$'))",
            check=lambda m: (
                m.operator not in {"Gt", "Lt"}
                or m.values is None
                or (len(m.values) == 1 and re.fullmatch("[0-9]+", m.values[0]) is not None)
            ),
            message=(
                "spec.runtime.placement.affinity.nodeAffinity: the expression for the label {key} has operator {operator}, "
                "which needs one integer in values; for example {{key: cores, operator: Gt, values: ['16']}}"
            ),
        ),
    )


class LabelSelector(Documented):
    """Labels of pods in the ModelDeployment's namespace. All conditions must hold."""

    match_labels: Annotated[dict[LabelKey, LabelValue], Field(min_length=1, max_length=16)] | None = None
    """Labels that a pod must have. Default: none."""
    match_expressions: Annotated[tuple[PodRequirement, ...], Field(min_length=1, max_length=8)] | None = None
    """Conditions on the labels of a pod. Default: none."""


class PodAffinityTerm(Documented):
    """Rule that relates a pod to other pods of the namespace, within a domain of nodes such as a zone."""

    label_selector: LabelSelector
    """Other pods to which the rule refers, for example `{matchLabels: {app: feature-store}}`. `{}` selects all pods of
    the namespace."""
    topology_key: LabelKey
    """Label of nodes that defines the domains, for example `topology.kubernetes.io/zone`. Nodes with the same value are
    in one domain."""


class WeightedPodAffinityTerm(Documented):
    """Preference for or against running near certain pods, with its weight."""

    weight: Annotated[int, Field(ge=1, le=100)]
    """Weight of the preference, 1 to 100."""
    pod_affinity_term: PodAffinityTerm
    """Pods to which the preference refers, and the domain in which they are compared."""


class NodeSelectorTerm(Documented):
    """Conditions on the labels of a node. All of them must hold."""

    match_expressions: Annotated[tuple[NodeRequirement, ...], Field(min_length=1, max_length=8)]
    """Conditions on the labels of a node."""


class PreferredSchedulingTerm(Documented):
    """A preference for nodes, with its weight."""

    weight: Annotated[int, Field(ge=1, le=100)]
    """Weight of the preference, 1 to 100."""
    preference: NodeSelectorTerm
    """Conditions that the preferred nodes fulfil."""


class NodeSelector(Documented):
    """Selection of the nodes that match at least one of several terms."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field(min_length=1, max_length=8)]
    """Terms with conditions on nodes. A node must match at least one of them."""


class NodeAffinity(Documented):
    """Nodes that pods must or should run on."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """Nodes that a pod may be scheduled to. Default: all nodes."""
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PreferredSchedulingTerm, ...], Field(min_length=1, max_length=8)] | None
    ) = None
    """Nodes that are preferred. Default: none."""

    def terms(self) -> list[NodeSelectorTerm]:
        """Return all terms for the selection of nodes, required and preferred ones."""
        required = self.required_during_scheduling_ignored_during_execution
        preferred = self.preferred_during_scheduling_ignored_during_execution or ()
        return [*(required.node_selector_terms if required else ()), *(term.preference for term in preferred)]


class PodAffinity(Documented):
    """Rules for running in the same domain as certain other pods, or for avoiding it."""

    required_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PodAffinityTerm, ...], Field(min_length=1, max_length=8)] | None
    ) = None
    """Rules that must hold when a pod is scheduled. Default: none."""
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[tuple[WeightedPodAffinityTerm, ...], Field(min_length=1, max_length=8)] | None
    ) = None
    """Preferences for scheduling a pod. Default: none."""


class Affinity(Documented):
    """Scheduling rules that depend on the labels of nodes and of other pods, as in a pod."""

    node_affinity: NodeAffinity | None = None
    """Nodes to run on. `sitePolicy.pods.nodeSelectors` applies to its required and preferred terms. Default: all nodes."""
    pod_affinity: PodAffinity | None = None
    """Pods of the same namespace near which the server pods should run. Default: none."""
    pod_anti_affinity: PodAffinity | None = None
    """Pods of the same namespace near which the server pods should not run. Default: none."""


class TopologySpreadConstraint(Documented):
    """An even spread of the model's server pods over domains of nodes."""

    max_skew: Annotated[int, Field(ge=1, le=1000)]
    """Maximum difference in the number of pods between two domains, 1 to 1000."""
    topology_key: LabelKey
    """Label of nodes that defines the domains, for example `topology.kubernetes.io/zone`. Nodes with the same value are
    in one domain."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    """What happens to a pod that would exceed `maxSkew`: it stays pending, or is scheduled nevertheless."""
    min_domains: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Minimum number of domains, 1 to 1000. If there are fewer domains, the lowest number of pods in a domain counts as
    0. Only for `DoNotSchedule`. Default: 1."""
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    """Whether the pod's node selector and affinity decide which nodes count. `Honor`: only nodes that match them count.
    `Ignore`: all nodes count. Default: Honor."""
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    """Whether taints decide which nodes count. `Honor`: nodes with taints that the pod does not tolerate do not count.
    `Ignore`: all nodes count. Default: Ignore."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'",
            check=lambda m: m.min_domains is None or m.when_unsatisfiable == "DoNotSchedule",
            message=(
                "spec.runtime.placement.topologySpreadConstraints: {topologyKey} has minDomains and whenUnsatisfiable: "
                "{whenUnsatisfiable}; minDomains needs whenUnsatisfiable: DoNotSchedule; change that, or remove minDomains"
            ),
        ),
    )


class Placement(Documented):
    """Placement of pods: their nodes and their priority."""

    node_selector: Annotated[dict[LabelKey, LabelValue], Field(min_length=1, max_length=32)] | None = None
    """Labels that a node must have, for example `pool: gpu`. Default: none."""
    tolerations: Annotated[tuple[Toleration, ...], Field(min_length=1, max_length=16)] | None = None
    """Taints that the pods tolerate. Default: none."""
    priority_class_name: DnsName | None = None
    """Priority class of the pods. Default: the cluster's default class."""
    runtime_class_name: DnsName | None = None
    """Runtime class of the pods, for example `nvidia`. Default: the default runtime of the nodes."""


class ServerPlacement(Placement):
    """Placement of the server pods.

    Pods with a GPU always tolerate the taint `nvidia.com/gpu`.
    """

    affinity: Affinity | None = None
    """Scheduling rules that depend on the labels of nodes and of other pods of the namespace, as in a pod. Default:
    none."""
    topology_spread_constraints: (
        Annotated[
            tuple[TopologySpreadConstraint, ...],
            Field(max_length=8),
            ListMap(("topologyKey", "whenUnsatisfiable")),
        ]
        | None
    ) = None
    """Spread of the model's server pods over nodes and zones, as in a pod. The operator adds the label selector. `[]`
    turns the spread off. Default: `maxSkew: 1` over `kubernetes.io/hostname`, with `whenUnsatisfiable:
    ScheduleAnyway`."""
