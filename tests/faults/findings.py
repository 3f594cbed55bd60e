"""Mistakes of the product that the campaigns have found, and their false alarms. Both are shown in docs/quality/faults.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A divergence that was a mistake of the product, and is mended."""

    description: str
    how: str
    """The plan that has found it."""
    test: str
    """Path of the test that keeps it."""


@dataclass(frozen=True)
class FalseAlarm:
    """A kind of divergence that was a mistake of the tests."""

    description: str
    plans: int
    """Number of plans that it has affected."""
    cause: str
    """Why an equal or correct end looked like a divergence."""
    mended: str
    """Change that keeps it from arising again; empty if there is none yet."""
    test: str = ""
    """Path of the test that keeps it mended."""
    discarded: bool = True
    """Whether the results were discarded, so that the plans aren't among those that are counted."""


FINDINGS: tuple[Finding, ...] = (
    Finding(
        "An operator with an old list of models creates the objects of a deleted model again, until the garbage collector deletes them",
        "delete/stale/view-2: the operator starts with the lists of a moment before the deletion",
        "tests/unit/control/reconcile/test_reconciler.py::test_objects_of_a_deleted_model_are_not_created",
    ),
    Finding(
        "Limits of a canary's analysis with mode Disabled have no effect, and no condition said so (metrics alone were named)",
        "reading which fields each mode leaves without effect, for the list of mutations that may be silent",
        "tests/unit/api/spec/test_defaults.py::test_limits_of_a_disabled_analysis_are_reported_as_ineffective",
    ),
    Finding(
        "Fixed replicas that change within 15 s of the operator's start are missing from the column DESIRED, which keeps the old number",
        "zero: the reference, whose second operator began before its last step, had 1 in place of 2; a run with a crash differed from it",
        "tests/unit/control/status/test_status.py::test_fixed_replicas_are_shown_also_by_a_young_process",
    ),
    Finding(
        "An operator with old lists or watches writes the objects of an earlier spec again, so that pods of an old revision start",
        "95 of 180 stale views (image, batching, version, rotate, scale-hpa, zero, canary-abort and others)",
        "tests/unit/control/reconcile/test_children_writer.py::test_objects_of_an_earlier_spec_are_not_written_again",
    ),
    Finding(
        "If the watches of some kinds are late, the Service and budget of a canary's slot that has ended are created again",
        "25 of 180 stale views (canary-promote and canary-abort)",
        "tests/unit/control/reconcile/test_children_writer.py::test_objects_beside_deleted_servers_are_not_created",
    ),
    Finding(
        "After balancers were scaled down, a condition says that 10 of 1 balancers are ready, for up to 10 s",
        "mutations: traffic.balancerReplicas at its bound, and back",
        "tests/unit/control/status/test_status.py::test_surplus_balancers_are_not_counted_as_ready",
    ),
    Finding(
        "A source that doesn't exist is reported without the field that names it",
        "mutations: model.source.configMap.name and model.source.persistentVolumeClaim.claimName, changed",
        "tests/integration/operator/test_bad_input.py::test_a_missing_config_map_is_named_and_creation_resumes_by_itself",
    ),
    Finding(
        "On a cluster without the Gateway API, the condition names neither the field nor the Gateway, so that another one changes nothing",
        "mutations: traffic.gateway.name, changed",
        "tests/unit/control/status/test_routes.py::test_a_cluster_without_the_gateway_api_is_reported_with_field",
    ),
)
_ORACLES = "tests/unit/test_fault_oracles.py"
FALSE_ALARMS: tuple[FalseAlarm, ...] = (
    FalseAlarm(
        "Generations in conditions, statuses of Deployments and revisions kept on purpose differ after a change and its reversal",
        60,
        "a counter of changes is higher after two changes than before them, by definition",
        "`acto.current` leaves out counters of changes, statuses of objects other than the model, and former specs",
        f"{_ORACLES}::test_counters_of_changes_are_no_difference_after_a_reversal",
    ),
    FalseAlarm(
        "Names and certificates of another installation differ",
        42,
        "each lane installs the operator under its own name, with its own certificate authority",
        "`oracles.canonical` replaces the installation's name and each certificate by what they stand for",
        f"{_ORACLES}::test_names_and_certificates_of_an_installation_are_no_difference",
    ),
    FalseAlarm(
        "The key of a balancer's drain differs",
        12,
        "the key is derived from the model's uid, which differs in each run",
        "`oracles.canonical` replaces the key",
        f"{_ORACLES}::test_keys_of_a_model_s_drain_are_no_difference",
    ),
    FalseAlarm(
        "The age of a report in a message differs",
        1,
        "the message has a measurement of the moment",
        "`oracles.canonical` replaces ages",
        f"{_ORACLES}::test_ages_in_a_message_are_measurements_of_the_moment",
    ),
    FalseAlarm(
        "Secrets were rotated a second time before the balancers ran with the first",
        2,
        "the Deployment controller may skip a template that is replaced at once, so the number of ReplicaSets depends on its speed",
        "the step ends when all balancers are of the template (`workloads.balanced`)",
        "tests/unit/test_fault_plans.py::test_rotated_secrets_wait_for_balancers_of_the_template",
    ),
    FalseAlarm(
        "The GPU time of a status and a ReplicaSet's former numbers differ, pods wait for a GPU of the one node, and the names of revisions, by which the files of a model differ, were not compared",
        53,
        "GPU time is measured and published some seconds later; a wave of 30 models needs more GPUs than one node has",
        "`acto.current` leaves out measurements and former ReplicaSets and compares names of revisions; the site has a node with 1,000 GPUs",
        f"{_ORACLES}::test_gpu_times_and_former_replica_sets_are_no_difference",
    ),
    FalseAlarm(
        "Pods of equal models are on different nodes",
        4,
        "the control plane has a second node with GPUs, and the scheduler chooses one",
        "`oracles.canonical` compares whether a pod has a node, not which",
        f"{_ORACLES}::test_nodes_of_pods_may_differ_if_each_has_one",
        discarded=False,
    ),
    FalseAlarm(
        "Statuses are of a moment at which no pod was seen yet, and a capacity is missing",
        10,
        "on a busy machine the history took minutes: the API server refused to watch from its old versions, and the informers waited between attempts, which counted as rest",
        "the control plane of the campaigns keeps every version, a view without its version isn't judged (`stale.must_have_had`), and rest takes 6 s without a write",
        "tests/unit/test_fault_plans.py::test_views_of_a_forgotten_version_are_not_judged",
    ),
    FalseAlarm(
        "The capacity, the signals and the number of decisions of a model with load differ",
        29,
        "whether the last operator had a report, and whether it decided once or twice, depends on the machine's speed",
        "the maximum is one replica more, reports have no counters of rows and batches, and the workload ends without autoscaling",
        "tests/unit/test_fault_plans.py::test_the_load_of_a_workload_ends_with_its_autoscaling",
    ),
    FalseAlarm(
        "The annotation max-replicas of a ReplicaSet differs after a change of the strategy",
        1,
        "the Deployment controller writes the annotation only when it scales, so that of a former strategy may stay",
        "`acto.current` leaves out the annotation",
        f"{_ORACLES}::test_counters_of_changes_are_no_difference_after_a_reversal",
    ),
    FalseAlarm(
        "Pods, and numbers of pods in a status, differ",
        33,
        "a wave was compared while Kubernetes still created pods on a busy machine, or while a status was held back for up to 10 s",
        "`acto.Wave` waits for pods and Deployments, and for empty queues or the interval of statuses",
        f"{_ORACLES}::test_a_wave_waits_for_a_rollout_until_its_pods_are_unavailable",
    ),
    FalseAlarm(
        "Fields of a Gateway change no object",
        11,
        "the campaign's cluster had no Gateway API, without which no field below traffic.gateway has an effect",
        "mutations run on a cluster with the kinds of its routes",
        "tests/integration/operator/test_gateway_routes.py::test_routes_are_written_once_the_cluster_knows_them_and_its_gateway_reports",
        discarded=False,
    ),
    FalseAlarm(
        "Routes of a model are in conflict with those of another",
        11,
        "the models of a wave claimed the same hostnames at the same Gateway",
        "each model has a Gateway and hostnames of its own, unless these are the mutated fields",
        f"{_ORACLES}::test_models_of_a_wave_claim_hostnames_of_their_own",
        discarded=False,
    ),
)
