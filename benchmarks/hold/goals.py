"""The reliability goals R-1 to R-26: what each asks for, and what shows it. Data; `reliability` writes the page from it."""

from __future__ import annotations

from dataclasses import dataclass

API = "pods are KWOK's and load nothing"
PROCESS = f"{API}; operators are forks of one process that has imported their modules"
CAMPAIGN = f"{PROCESS}; the HPA's write is the test's; no agent runs"
PLAIN = "none"
_OPERATOR = "tests/integration/operator"
_SCENARIOS = "e2e/scenarios"


@dataclass(frozen=True)
class Count:
    """Number of cases that show a goal, from one source."""

    cases: str
    """What is counted, in the plural."""
    needed: int
    per_run: int | None = None
    """Number of cases that one run of the tests has, if that number is fixed in them."""
    trials: tuple[str, ...] = ()
    """Files of trials in docs/quality/data/reliability, whose cases are added up."""
    figure: str = ""
    """Figure of each trial that has its number of cases; empty: each trial is one case."""
    row: tuple[str, str] = ("", "")
    """Row of docs/quality/data/hold.json, and the name of its value."""


@dataclass(frozen=True)
class Bound:
    """Largest value of a figure of the trials."""

    figure: str
    largest: float


@dataclass(frozen=True)
class Goal:
    """One goal."""

    id: str
    fault: str
    bound: str
    counts: tuple[Count, ...] = ()
    tests: tuple[str, ...] = ()
    """Tests that show it, as FILE::TEST, and modules of benchmarks, as FILE."""
    stand_ins: str = PLAIN
    missing: str = ""
    """What isn't shown although the counts are reached; empty: nothing."""
    limits: tuple[Bound, ...] = ()


GOALS: tuple[Goal, ...] = (
    Goal(
        "R-1",
        "operator killed at every mutating request, before and after it",
        "all points of 8 workloads, 0 divergences from an undisturbed run, creates and deletes included",
        (Count("crash points of 16 workloads", 400, row=("2.1", "run")),),
        (
            "benchmarks/hold/faults.py",
            f"{_OPERATOR}/test_faults.py::test_an_operator_killed_at_any_write_of_a_creation_converges",
            f"{_OPERATOR}/test_faults.py::test_an_operator_killed_at_any_write_of_a_change_converges",
            f"{_OPERATOR}/test_faults.py::test_an_operator_killed_at_its_certificate_or_lease_starts_again",
        ),
        CAMPAIGN,
    ),
    Goal(
        "R-2",
        "lists and watches of an earlier moment after a restart",
        ">= 100 plans, 0 divergences, nothing of others deleted or adopted",
        (Count("stale views", 100, row=("2.2", "stale views")),),
        (
            "benchmarks/hold/faults.py",
            "tests/integration/writes/test_conditional_writes.py::test_an_object_between_look_and_write_is_never_taken_over",
        ),
        CAMPAIGN,
    ),
    Goal(
        "R-3",
        "events of children and models lost, held, repeated or swapped",
        ">= 100 plans, 0 divergences, repaired <= 60 s",
        (Count("disturbed events", 100, row=("2.2", "events disturbed")),),
        (
            "benchmarks/hold/faults.py",
            f"{_OPERATOR}/test_faults.py::test_a_change_while_watches_are_broken_is_seen_when_they_are_back",
        ),
        CAMPAIGN,
        "an event that is lost on a stream that goes on is repaired by the periodic list, every 600 s; the plans end the stream with 410",
    ),
    Goal(
        "R-4",
        "410, error frames, half-open connections, truncated, repeated and swapped frames, bookmarks only, silence",
        "0 stuck, recovered <= 5 s from 410 and <= 75 s from a silent stream, no growth of memory or tasks",
        (Count("disturbed events, 410 and truncated frames included", 100, row=("2.2", "events disturbed")),),
        (
            "benchmarks/hold/faults.py",
            "tests/unit/kube/informers/test_informer.py::test_an_expired_watch_is_followed_by_a_list_at_once",
            "tests/unit/kube/informers/test_informer.py::test_a_watch_without_news_for_minutes_is_followed_by_a_list",
            "tests/integration/agent/test_kube_watch.py::test_a_silent_stream_is_opened_again_and_nothing_is_lost",
            "tests/unit/kube/informers/test_informer.py::test_a_silent_watch_is_replaced_within_75_seconds",
        ),
        CAMPAIGN,
        "memory and tasks aren't counted",
    ),
    Goal(
        "R-5",
        "each request answered once with 403, 404, 409, 410, 422, 429, 500, 503, reset or late",
        "each request with each error once, 0 crashes, <= 1 write/s during the fault",
        (Count("plans of answers to writes", 176, row=("2.2", "plans of answers")),),
        (
            "benchmarks/hold/faults.py",
            f"{_OPERATOR}/test_faults.py::test_each_write_once_answered_with_each_error_converges",
            f"{_OPERATOR}/test_faults.py::test_every_request_failing_the_first_time_converges",
            f"{_OPERATOR}/test_faults.py::test_an_operator_whose_first_reads_all_fail_starts_working",
            f"{_OPERATOR}/test_faults.py::test_a_failing_write_is_retried_at_most_once_a_second",
        ),
        CAMPAIGN,
        "three writes of each workload have each error, not every request; reviews and evictions under load aren't disturbed",
    ),
    Goal(
        "R-6",
        "each leaf field of the CRD unset, changed, at its bounds, invalid",
        "100 % of the leaves, >= 1,000 mutations, 0 crashes, unrecovered, divergent or silent",
        (
            Count("mutations", 1000, row=("2.3", "mutations")),
            Count("percent of leaf fields", 100, row=("2.3", "percent of leaf fields")),
        ),
        ("benchmarks/hold/faults.py", "tests/integration/api/test_crd.py::test_a_gpu_that_is_asked_for_is_a_whole_one"),
        CAMPAIGN,
        "64 accepted specs of 2,271 are not judged yet",
    ),
    Goal(
        "R-7",
        "each owned object edited and deleted by others, fields of others added",
        "each object x {edit, delete}; repaired <= 5 s with a watch, <= 60 s without",
        (Count("edits and deletions", 26, per_run=26),),
        (
            f"{_OPERATOR}/test_conflicting_objects.py::test_every_child_that_is_deleted_comes_back",
            f"{_OPERATOR}/test_conflicting_objects.py::test_every_edit_of_a_child_is_set_right",
            f"{_OPERATOR}/test_conflicting_objects.py::test_a_finished_edit_by_another_field_manager_is_set_right_as_well",
            f"{_OPERATOR}/test_conflicting_objects.py::test_labels_annotations_and_fields_of_others_stay",
            "tests/integration/autoscaling/test_external_hpa.py::test_an_external_hpa_is_named_and_keeps_the_replicas",
        ),
        API,
        "one or two fields of each object, not each; without a watch the repair takes up to 600 s",
    ),
    Goal(
        "R-8",
        "objects of others with the names of children",
        "100 % of the kinds: Conflict, nothing overwritten or deleted",
        (Count("kinds of children", 13, per_run=13),),
        (
            "tests/integration/writes/test_conditional_writes.py::test_every_kind_is_created_once_and_changed_only_as_it_was_seen",
            "tests/integration/writes/test_conditional_writes.py::test_an_object_between_look_and_write_is_never_taken_over",
            f"{_OPERATOR}/test_conflicting_objects.py::test_a_conflicting_object_is_left_untouched_and_no_other_is_made",
            f"{_OPERATOR}/test_network_policies.py::test_a_conflicting_network_policy_is_left_alone_and_named",
        ),
        API,
        "the condition Conflict is checked for six kinds; the others by the writes of the client that reconciles use",
    ),
    Goal(
        "R-9",
        "leader paused past its lease, killed, cut off one way, ended",
        "0 double writes in 200 fail-overs, take-over <= 15 s",
        (Count("fail-overs", 200, trials=("R-9",)),),
        (
            "tests/reliability/test_leaders.py::test_former_leaders_write_nothing_after_a_takeover",
            f"{_OPERATOR}/test_leader_election.py::test_a_leader_paused_past_its_lease_writes_no_more_and_ends",
            "tests/unit/kube/test_leader_election.py::test_two_never_lead_at_once_and_one_leads_when_faults_are_over",
        ),
        f"{PROCESS}; the proxy delays requests by 14 s in place of a slow network",
        limits=(Bound("takeover_s", 15.0),),
    ),
    Goal(
        "R-10",
        "models deleted at every stage of creation and change, namespaces deleted, no operator running",
        "0 leaks in 200 deletions",
        (Count("deletions", 200, trials=("R-10", "R-10-down"), figure="deletions"),),
        (
            "tests/reliability/test_models.py::test_deletions_at_every_stage_leave_nothing",
            "tests/reliability/test_models.py::test_models_deleted_while_no_operator_runs_leave_nothing",
            f"{_OPERATOR}/test_leader_election.py::test_a_namespace_with_a_served_model_can_be_deleted",
            f"{_SCENARIOS}/test_operator.py::test_children_of_a_model_that_is_deleted_while_no_operator_runs_go_too",
        ),
        PROCESS,
    ),
    Goal(
        "R-11",
        "models deleted and created again within a second",
        "0 divergences in 100: every object and pod belongs to the new uid",
        (Count("recreations", 100, trials=("R-11",)),),
        (
            "tests/reliability/test_models.py::test_recreated_models_have_only_objects_of_their_own",
            f"{_OPERATOR}/test_conflicting_objects.py::test_a_model_deployment_recreated_at_once_gets_children_of_its_own",
        ),
        PROCESS,
        limits=(Bound("delete_to_create_s", 1.0),),
    ),
    Goal(
        "R-12",
        "no input for 10 minutes",
        "0 writes, memory < 5 MiB/h with 500 models",
        (Count("idle models", 500, per_run=20),),
        (f"{_OPERATOR}/test_idle_writes.py::test_twenty_idle_models_cause_no_writes_and_fit_into_150_mib",),
        API,
        "20 models for 32 s; the slope of the memory isn't measured",
    ),
    Goal(
        "R-13",
        "metrics missing, stale, NaN, infinite, negative, late, or a page of HTML",
        ">= 30 cases, 0 wrong scalings, Ready stays True",
        (Count("kinds of broken metrics", 30, per_run=50),),
        (
            "tests/simulator/test_broken_metrics.py::test_a_broken_metric_moves_nothing_and_leaves_nothing_behind",
            "tests/simulator/test_broken_metrics.py::test_the_number_of_broken_kinds_is_sufficient",
            "tests/simulator/test_broken_readings.py::test_a_broken_signal_scales_nothing_and_leaves_nothing_behind",
            "tests/integration/signals/test_prometheus.py::test_values_hold_until_stale_while_prometheus_is_away_and_then_return",
            "tests/integration/autoscaling/test_direct_scaling.py::test_a_queue_that_agents_report_is_scaled_for_and_silence_holds",
        ),
        "most cases are of simulated pods and a simulated API server",
        "on real parts about eight kinds, not 30",
    ),
    Goal(
        "R-14",
        "square waves, saw teeth and noise near the stabilisation window",
        "<= 1 change per window, 0 changes at constant load for 30 min",
        (Count("drawn loads", 1, per_run=1),),
        (
            "tests/simulator/planner/test_bounds.py::test_replicas_never_turn_once_the_noise_of_constant_load_is_known",
            "tests/simulator/planner/test_bounds.py::test_a_few_replicas_stand_still_from_the_second_hour_of_constant_load",
            "tests/simulator/planner/test_closed_loop.py::test_a_jumping_load_turns_the_replicas_a_bounded_number_of_times",
        ),
        "pods, balancers and load are simulated",
        "no real HPA and pods; the first hour of a constant load may have changes",
    ),
    Goal(
        "R-15",
        "models that can't load: configuration, missing file, memory, compute capability",
        "0 requests lost on a failing update, Triton's reason in the condition",
        (Count("causes", 4, per_run=3),),
        (
            f"{_SCENARIOS}/test_rollout.py::test_a_revision_that_does_not_load_never_serves_and_the_one_before_comes_back",
            f"{_SCENARIOS}/test_serving.py::test_a_model_that_does_not_load_has_tritons_own_reason_in_its_condition",
            f"{_SCENARIOS}/test_serving.py::test_a_broken_config_file_has_its_line_in_the_condition",
            f"{_OPERATOR}/test_rollout.py::test_a_replaced_revision_that_cannot_load_comes_back_after_one_pod",
        ),
        PLAIN,
        "running out of memory while loading, and a wrong compute capability, need a GPU",
    ),
    Goal(
        "R-16",
        "pods evicted or killed, nodes lost, allocatable GPUs fall to 0, preemption",
        "back < 60 s after capacity returns, disruption budgets respected",
        (Count("causes", 6, per_run=5),),
        (
            f"{_SCENARIOS}/test_loss.py::test_a_killed_server_costs_at_most_what_it_was_computing",
            f"{_SCENARIOS}/test_balancing.py::test_no_request_is_lost_when_a_pod_is_deleted_under_load",
            f"{_SCENARIOS}/test_balancing.py::test_a_pod_whose_python_stub_died_is_out_and_restarts_in_place",
            "tests/integration/cluster/test_interference.py::test_a_pod_that_was_preempted_or_drained_is_replaced_and_no_failure",
            f"{_SCENARIOS}/test_node_loss.py::test_pods_of_a_lost_node_are_replaced_on_the_other",
            f"{_SCENARIOS}/test_node_loss.py::test_return_of_the_node_ends_its_old_pods_and_keeps_the_counts",
        ),
        "both nodes are namespaces of one machine",
        "allocatable GPUs that fall to 0",
    ),
    Goal(
        "R-17",
        "pods that find no place: GPUs, taints, labels, quotas",
        "100 % of 8 causes explained in the status",
        (Count("causes", 8, per_run=6),),
        (
            f"{_OPERATOR}/test_rollout.py::test_auto_replaces_without_capacity_to_surge_and_reports_it",
            f"{_OPERATOR}/test_rollout.py::test_a_quota_is_capacity_too",
            "tests/integration/autoscaling/test_planner.py::test_free_gpus_limit_no_replicas_and_the_scheduler_names_the_shortage",
            "tests/integration/autoscaling/test_gpu_resources.py::test_claimed_devices_are_allocated_and_one_pod_too_many_is_unschedulable",
            "tests/integration/autoscaling/test_gpu_resources.py::test_a_missing_claim_template_is_named_until_it_exists",
            "tests/integration/cluster/test_interference.py::test_pods_behind_a_scheduling_gate_wait_and_then_serve",
        ),
        API,
        "a taint and a missing node label, each with the numbers that are needed and available",
    ),
    Goal(
        "R-18",
        "image, batching, arguments and version changed under load",
        "0 of >= 100,000 requests fail",
        (Count("requests", 100_000, per_run=100_000),),
        (
            "benchmarks/dataplane/loss.py",
            f"{_SCENARIOS}/test_loss.py::test_no_request_is_lost",
            "tests/integration/clients/test_ending_servers.py::test_the_only_server_is_replaced_without_a_lost_request",
        ),
        "the embedded cluster has one node",
        "under the 100,000 requests, only batching and the model's parameters are changed, and a canary is promoted",
    ),
    Goal(
        "R-19",
        "clocks that jump by an hour, changes of daylight saving time",
        "0 wrong scalings, the lease is safe",
        (Count("kinds of jumps", 4, per_run=4),),
        (
            "tests/integration/cluster/test_clocks.py::test_the_operator_has_the_time_of_the_api_server",
            "tests/simulator/planner/test_closed_loop.py::test_a_clock_that_was_set_changes_no_decision",
            "tests/unit/control/autoscaling/test_decider.py::test_a_wall_clock_that_is_set_changes_no_replicas",
            "tests/unit/scaling/test_schedules.py::test_a_check_minute_by_minute_over_a_change_of_the_clocks_agrees",
        ),
        "the clock is an argument of the code; no process runs under a clock that is set",
        "a whole operator under libfaketime",
    ),
    Goal(
        "R-20",
        "500 to 1,000 models, 10 % of them changed each minute, all listed again at the start",
        "start <= 60 s, p99 from event to first write <= 2 s, one bad model delays no other",
        (Count("models", 1000, row=("3.1", "models")),),
        (
            "benchmarks/hold/size.py",
            "tests/integration/signals/test_pod_scraper.py::test_a_few_hanging_models_delay_no_other",
        ),
        f"{API}; reports of agents come from a load generator",
        "the rate of changes and one bad model beside; first decisions of 1,000 models take 20.6 s (row 3.1 of hold.md)",
    ),
    Goal(
        "R-21",
        "upgrade and downgrade of operator and CRD",
        "0 pods restarted, 0 divergences both ways",
        (Count("directions", 2, per_run=2),),
        (
            f"{_SCENARIOS}/test_upgrade.py::test_an_upgrade_and_the_way_back_restart_no_model_and_lose_nothing",
            "tests/integration/cli/test_refresh.py::test_a_newer_operator_restarts_no_server_and_names_older_renderings",
            f"{_OPERATOR}/test_rollout.py::test_records_of_an_earlier_version_restart_no_pod_and_count_as_good",
        ),
        "both versions are the same code with other images",
        "two versions of the code, and of the stored form of the CRD",
    ),
    Goal(
        "R-22",
        "stored objects of any shape that passed no validation",
        "0 crashes, only that object is not accepted",
        (Count("specs that passed no validation", 354, per_run=354),),
        (
            f"{_OPERATOR}/test_bad_input.py::test_a_stored_spec_breaking_a_new_rule_is_rejected_and_keeps_serving",
            "tests/integration/api/test_hostile_specs.py",
            "tests/unit/control/state/test_malformed_objects.py::test_no_shape_of_any_field_hides_the_other_models",
        ),
        API,
    ),
    Goal(
        "R-23",
        "each rule of the operator's roles taken away",
        "each rule once: verb and resource named, the rest goes on, recovers",
        (Count("rules", 23, per_run=23),),
        (
            f"{_OPERATOR}/test_missing_rights.py::test_each_rule_of_the_roles_is_needed_and_named_while_missing",
            f"{_OPERATOR}/test_rights.py::test_the_charts_roles_are_what_the_operator_needs_and_no_more",
        ),
        API,
    ),
    Goal(
        "R-24",
        "no operator runs while users edit models",
        "edits work: there is no webhook, the rules are in the CRD and in admission policies",
        (Count("kinds of rules", 2, per_run=2),),
        (
            "tests/integration/api/test_crd.py::test_a_gpu_target_without_a_gpu_gives_the_same_sentence_as_ours",
            "tests/integration/api/test_site_policy.py::test_objects_older_than_a_limit_may_be_relabelled_scaled_and_deleted",
        ),
        PLAIN,
    ),
    Goal(
        "R-25",
        "200 changes of one model within 10 s",
        "<= 5 rollouts, the last change wins",
        (Count("storms", 10, trials=("R-25",)),),
        ("tests/reliability/test_models.py::test_storms_of_changes_cause_few_rollouts",),
        PROCESS,
        limits=(Bound("rollouts", 5.0),),
    ),
    Goal(
        "R-26",
        "10 minutes of failing requests and changing specs",
        "<= 1 status write/s and <= 10 Events/min per model",
        (Count("minutes", 10, trials=("R-26",), figure="minutes"),),
        (
            "tests/reliability/test_hygiene.py::test_status_writes_and_events_stay_few_under_faults",
            "tests/unit/control/status/test_events.py::test_an_event_names_its_object_and_is_not_repeated_for_a_while",
        ),
        PROCESS,
    ),
)
