"""`spec.runtime.placement`: the nodes that pods run on, with the types of core/v1.

A pod affinity covers the ModelDeployment's own namespace only: `namespaces` and `namespaceSelector` are left out.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from halcyon.api.types import ApiModel, AtomicMap, DnsName, LabelKey, LabelValue, ListMap, Rule


class Toleration(ApiModel):
    """A taint that the pods tolerate."""

    key: LabelKey
    """Key of the taint, for example `nvidia.com/gpu`."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Comparison with the taint's value. `Equal`: the values must be equal. `Exists`: any value is tolerated. Default:
    Equal."""
    value: LabelValue | None = None
    """Value of the taint. Only for the operator `Equal`. Default: none."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Default: all effects."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.operator) || self.operator != 'Exists' || !has(self.value)",
            check=lambda m: m.operator != "Exists" or m.value is None,
            message="spec.runtime.placement.tolerations: {key} has operator Exists and a value; remove the "
            "value, or set operator: Equal",
        ),
    )


class _Requirement(ApiModel):
    key: LabelKey
    """Key of the label to compare."""
    values: Annotated[tuple[LabelValue, ...], Field(min_length=1, max_length=32)] | None = None
    """Values for the comparison. `In` and `NotIn` need 1 to 32 values; `Exists` and `DoesNotExist` take none. Default:
    none."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.values) != (self.operator in ['Exists', 'DoesNotExist'])",
            check=lambda m: (m.values is not None) != (m.operator in {"Exists", "DoesNotExist"}),
            message="spec.runtime.placement: the expression for the label {key} has operator {operator}; Exists and "
            "DoesNotExist take no values, the others need them; for example {{key: pool, operator: In, values: [gpu]}}",
        ),
    )


class PodRequirement(_Requirement):
    """A condition on a label of a pod."""

    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """Comparison of the pod's label with `values`. `In`: the label has one of the values. `NotIn`: the label has none
    of them or is missing. `Exists`: the label is present. `DoesNotExist`: the label is missing."""


class NodeRequirement(_Requirement):
    """A condition on a label of a node."""

    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """Comparison of the node's label with `values`. `In`: the label has one of the values. `NotIn`: the label has none
    of them or is missing. `Exists`: the label is present. `DoesNotExist`: the label is missing. `Gt` and `Lt`: the
    label is an integer above or below the single value."""

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
            message="spec.runtime.placement.affinity.nodeAffinity: the expression for the label {key} has operator {operator}, "
            "which needs one integer in values; for example {{key: cores, operator: Gt, values: ['16']}}",
        ),
    )


class LabelSelector(ApiModel):
    """Labels of pods in the ModelDeployment's namespace. All conditions must hold."""

    match_labels: Annotated[dict[LabelKey, LabelValue], Field(min_length=1, max_length=16)] | None = None
    """Labels, with their values, that a pod must have. Default: none."""
    match_expressions: Annotated[tuple[PodRequirement, ...], Field(min_length=1, max_length=8)] | None = None
    """Conditions on the labels of a pod, all of which must hold. Default: none."""


class PodAffinityTerm(ApiModel):
    """Selection of pods, and the node label that defines which nodes count as near them."""

    label_selector: Annotated[LabelSelector, AtomicMap()]
    """Labels of the pods to select, for example `{matchLabels: {app: feature-store}}`. `{}` selects all pods."""
    topology_key: LabelKey
    """Node label that defines the domains, for example `topology.kubernetes.io/zone`. All nodes with the same value of
    this label form one domain."""


class WeightedPodAffinityTerm(ApiModel):
    """A preference with a weight.

    In podAffinity, nodes near the selected pods are preferred. In podAntiAffinity, other nodes are preferred.
    """

    weight: Annotated[int, Field(ge=1, le=100)]
    """Weight (1 to 100) of the preference compared with other preferences."""
    pod_affinity_term: PodAffinityTerm
    """Pods to select, and the node label that defines which nodes count as near them."""


class NodeSelectorTerm(ApiModel):
    """One term: conditions on a node's labels, all of which must hold."""

    match_expressions: Annotated[tuple[NodeRequirement, ...], Field(min_length=1, max_length=8)]
    """Conditions on the labels of a node, all of which must hold."""


class PreferredSchedulingTerm(ApiModel):
    """A weighted preference for nodes with certain labels."""

    weight: Annotated[int, Field(ge=1, le=100)]
    """Weight (1 to 100) of the preference compared with other preferences."""
    preference: NodeSelectorTerm
    """Conditions on the labels of the preferred nodes."""


class NodeSelector(ApiModel):
    """Selection of the nodes that match at least one of several terms."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field(min_length=1, max_length=8)]
    """Alternative terms. A node must match at least one of them."""


class NodeAffinity(ApiModel):
    """Nodes that pods must or should run on."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """Nodes to which pods may be scheduled. Default: all nodes."""
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PreferredSchedulingTerm, ...], Field(min_length=1, max_length=8)] | None
    ) = None
    """Preferences for nodes. The scheduler can still choose other nodes. Default: none."""

    def terms(self) -> list[NodeSelectorTerm]:
        """Return all terms that select nodes, both the required and the preferred ones."""
        required = self.required_during_scheduling_ignored_during_execution
        preferred = self.preferred_during_scheduling_ignored_during_execution or ()
        return [*(required.node_selector_terms if required else ()), *(term.preference for term in preferred)]


class PodAffinity(ApiModel):
    """Rules for running in the same domain as certain other pods, or in a different domain."""

    required_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PodAffinityTerm, ...], Field(min_length=1, max_length=8)] | None
    ) = None
    """Rules that must hold when a pod is scheduled. Default: none."""
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[tuple[WeightedPodAffinityTerm, ...], Field(min_length=1, max_length=8)] | None
    ) = None
    """Preferences, each with a weight. The scheduler can still choose other nodes. Default: none."""


class Affinity(ApiModel):
    """Scheduling rules that depend on the labels of nodes and of other pods, as in a pod."""

    node_affinity: NodeAffinity | None = None
    """Nodes for the server pods, selected by their labels. The site can restrict these labels
    (`sitePolicy.pods.nodeSelectors`). Default: all nodes."""
    pod_affinity: PodAffinity | None = None
    """Pods in the same namespace that the server pods should run near. Default: none."""
    pod_anti_affinity: PodAffinity | None = None
    """Pods in the same namespace that the server pods should avoid running near. Default: none."""


class TopologySpreadConstraint(ApiModel):
    """One rule for an even spread of the model's server pods across domains of nodes, for example zones."""

    max_skew: Annotated[int, Field(ge=1, le=1000)]
    """Maximum difference (1 to 1000) between the numbers of server pods in any two domains."""
    topology_key: LabelKey
    """Node label that defines the domains, for example `topology.kubernetes.io/zone`. All nodes with the same value of
    this label form one domain."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    """Action on a pod that would exceed maxSkew. `DoNotSchedule`: the pod stays pending. `ScheduleAnyway`: the pod is
    scheduled nevertheless."""
    min_domains: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Minimum number of domains, 1 to 1000. If there are fewer domains, Kubernetes treats the minimum number of pods in
    a domain as 0. Only for `DoNotSchedule`. Default: 1."""
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    """Treatment of nodes that the pod's node selector or affinity excludes. `Honor`: such nodes are not counted.
    `Ignore`: all nodes are counted. Default: Honor."""
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    """Treatment of nodes whose taints the pod does not tolerate. `Honor`: such nodes are not counted. `Ignore`: all
    nodes are counted. Default: Ignore."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'",
            check=lambda m: m.min_domains is None or m.when_unsatisfiable == "DoNotSchedule",
            message="spec.runtime.placement.topologySpreadConstraints: {topologyKey} has minDomains and whenUnsatisfiable: "
            "{whenUnsatisfiable}; minDomains needs whenUnsatisfiable: DoNotSchedule; change that, or remove minDomains",
        ),
    )


class Placement(ApiModel):
    """Placement of pods: their nodes and their priority."""

    node_selector: Annotated[dict[LabelKey, LabelValue], Field(min_length=1, max_length=32)] | None = None
    """Labels that a node must have besides `kubernetes.io/os: linux`, for example `pool: gpu`. Default: none."""
    tolerations: Annotated[tuple[Toleration, ...], Field(min_length=1, max_length=16)] | None = None
    """Taints that the pods tolerate. Default: none."""
    priority_class_name: DnsName | None = None
    """Name of the pods' PriorityClass. Default: the cluster's default class."""
    runtime_class_name: DnsName | None = None
    """Name of the pods' RuntimeClass, for example `nvidia`. Default: the default runtime of the nodes."""


class ServerPlacement(Placement):
    """Placement of the server pods. Pods with GPUs also tolerate taints with the name of their GPU resource."""

    affinity: Affinity | None = None
    """Scheduling rules based on the labels of nodes and of other pods in the namespace, as in a pod spec. Default:
    none."""
    topology_spread_constraints: (
        Annotated[
            tuple[TopologySpreadConstraint, ...], Field(max_length=8), ListMap(("topologyKey", "whenUnsatisfiable"))
        ]
        | None
    ) = None
    """Spread of the model's server pods across nodes and zones, as in a pod spec. Halcyon sets the label selector. An
    empty list (`[]`) turns the spread off. Default: `maxSkew: 1` for the topology key `kubernetes.io/hostname`, with
    `whenUnsatisfiable: ScheduleAnyway`."""
