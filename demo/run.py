"""Sequence of the demo's steps. Each step is shown, measures, and records its figures for build/demo.json."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from demo import figures, footprint, models, scaling, serving
from demo.coldstart import cold_start
from demo.errors import DemoError
from demo.figures import Figures
from demo.kube import SYSTEM, Kube
from demo.models import DIGITS, GRPC_PORT, HTTP_PORT
from demo.screen import Screen
from demo.setup import EXISTING, Installed, install
from demo.watch import Watch
from e2e.load.process import LoadFailedError
from e2e.load.settings import Load, Report

_STEP_LIMIT_S = 150
"""Time limit for a scaling step in seconds: the HPA's sync interval of 15 s, the averaging time of the signals of 15 s,
and a margin."""
_LONG_PARTS = frozenset(
    {
        "batching_gain",
        "throughput_batched_rps",
        "throughput_unbatched_rps",
        "gpu_step_to_scale_s",
        "planned_step_to_scale_s",
        "planned_rejected_share",
        "channel_share",
        "writes_at_rest",
    }
)
_NOT_QUICK = "--quick leaves it out"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command `up`."""

    cluster: str = "halcyon"
    quick: bool = False
    rest_s: float = 60
    hpa_sync: str = "15s"


@dataclass
class Demo:
    """Steps of the demo on a cluster with Halcyon, and the figures that they measure."""

    options: Options
    screen: Screen
    installed: Installed
    figures: Figures = field(default_factory=dict)
    failed_steps: list[str] = field(default_factory=list)
    _reports: list[Report] = field(default_factory=list)

    @property
    def kube(self) -> Kube:
        """Cluster on which the demo runs."""
        return self.installed.kube

    def run(self) -> None:
        """Run all steps. If a step fails, show the failure, and continue with the steps that don't depend on it."""
        if not self._step("kubectl apply -f manifests/examples/digits.yaml", self._apply):
            return
        self._step("held-out digits over HTTP and gRPC", self._accuracy)
        if not self.options.quick:
            self._step("dynamic batching against none, 32 clients", self._batching)
            self._step("one gRPC channel over 3 pods", self._channel)
        self._scaling()
        self._step("memory and versions", self._memory)
        if not self.options.quick:
            self._step(f"{footprint.IDLE_MODELS} models at rest for {self.options.rest_s:g} s", self._rest)
        self.figures["requests"] = sum(report.requests for report in self._reports)
        self.figures |= figures.failures(kinds := _failure_counts(self._reports))
        if kinds:
            self.figures["failures"] = kinds

    def _step(self, title: str, work: Callable[[], str]) -> bool:
        self.screen.step(title)
        try:
            result = work()
        except (DemoError, LoadFailedError) as error:
            self.failed_steps.append(f"{title}: {error}")
            self.screen.end(str(error), ok=False)
            return False
        self.screen.end(result)
        return True

    def _apply(self) -> str:
        models.delete(self.kube, DIGITS)
        documents = models.documents()
        documents["ModelDeployment"] = models.digits(image=self.installed.triton_image)
        manifest = (
            models.MANIFEST.read_text()
            if self.installed.triton_image is None
            else "\n---\n".join(map(models.as_text, documents.values()))
        )
        start = cold_start(self.kube, DIGITS, manifest=manifest)
        self.figures["apply_to_first_answer_s"] = start.first_answer_s
        self.figures["cold_start_s"] = start.phases
        return "  ".join(f"{phase} {seconds:.1f}" for phase, seconds in start.phases.items())

    def _accuracy(self) -> str:
        accuracy = serving.accuracy(self.kube, DIGITS)
        self.figures["accuracy"] = min(accuracy.http, accuracy.grpc)
        return f"{accuracy.http:.1%} over HTTP, {accuracy.grpc:.1%} over gRPC, of {accuracy.digits} digits"

    def _batching(self) -> str:
        compared = serving.compared_models(image=self.installed.triton_image)
        batched, unbatched = names = [document["metadata"]["name"] for document in compared]
        self.kube.apply(*compared)
        try:
            models.wait_until_served(self.kube, *names)
            comparison = serving.compare_batching(self.kube, batched=batched, unbatched=unbatched)
        finally:
            models.delete(self.kube, *names)
        self._reports += [comparison.batched, comparison.unbatched]
        self.figures["throughput_batched_rps"] = comparison.batched.rate_rps
        self.figures["throughput_unbatched_rps"] = comparison.unbatched.rate_rps
        self.figures["batching_gain"] = comparison.gain
        return (
            f"{comparison.batched.rate_rps:.0f} against {comparison.unbatched.rate_rps:.0f} req/s: {comparison.gain} x, "
            f"{comparison.batched.mean_batch} rows in a batch"
        )

    def _channel(self) -> str:
        name = "digits-three"
        self.kube.apply(models.variant(name, replicas=3, image=self.installed.triton_image))
        try:
            models.wait_until_served(self.kube, name, replicas=3)
            report = serving.load_single_channel(self.kube, name, duration_s=10)
        finally:
            models.delete(self.kube, name)
        self._reports.append(report)
        self.figures["channel_share"] = [round(share, 3) for share in report.shares]
        return f"{figures.figure_text(report.shares)} of {report.answered} requests"

    def _scaling(self) -> None:
        """Scale up by queue, GPU utilization and planner, and down after each, while a probe counts failed requests."""
        probes = scaling.Probes(self.kube, DIGITS)
        with Watch(self.kube, DIGITS, on_sample=self.screen.sample) as watch, probes:
            self._step(
                f"{scaling.QUEUE_CLIENTS} clients: a queue, until the HPA adds replicas",
                lambda: self._up(watch, scaling.queue_load(self.kube, DIGITS, duration_s=_STEP_LIMIT_S), "queue"),
            )
            self._step("quiet, until it goes back to 1", lambda: self._down(watch, "queue"))
            if not self.options.quick:
                self._step(
                    f"{scaling.GPU_RATE_RPS:g} req/s: a busy GPU and no queue, until the HPA adds one",
                    lambda: self._up(watch, scaling.gpu_load(self.kube, DIGITS, duration_s=_STEP_LIMIT_S), "gpu"),
                )
                self._step("quiet, until it goes back to 1", lambda: self._down(watch, "gpu"))
                planned = f"policy Planner with {scaling.PLANNED_LATENCY}, at rest for {scaling.AT_REST_S:g} s"
                if self._step(planned, self._plan):
                    self._step(
                        f"{scaling.QUEUE_CLIENTS} clients again, until the planner adds replicas",
                        lambda: self._up(
                            watch, scaling.queue_load(self.kube, DIGITS, duration_s=_STEP_LIMIT_S), "planned"
                        ),
                    )
                self._step("digits.yaml's rules again, and back to 1", lambda: self._back(watch))
        self.screen.forget()
        self.figures["replicas_max"] = watch.most
        self._reports += probes.reports

    def _up(self, watch: Watch, load: Load, cause: str) -> str:
        self.screen.load(f"{load.model}: {'GPU' if cause == 'gpu' else cause} step")
        reason_of = scaling.planner_reason if cause == "planned" else None
        try:
            step = scaling.step_up(self.kube, watch, load, hold_s=10, on_report=self.screen.report, reason_of=reason_of)
        finally:
            self.screen.load("")
        self._reports.append(step.report)
        if cause == "planned":
            rejected = figures.failures(step.report.failures)["rejected_requests"]
            self.figures["planned_rejected_share"] = round(rejected / max(1, step.report.requests), 4)
        metric = {"queue": "queueDepth", "gpu": "gpuUtilization", "planned": "req/s"}[cause]
        self.figures[f"{cause}_step_to_scale_s"] = step.to_scale_s
        if cause == "queue":
            self.figures["mean_batch"] = step.mean_batch
        sample = step.change.sample
        if metric not in step.reason:
            raise DemoError(f"the HPA went to {step.change.after}, but not for {metric}: {step.reason}")
        if cause == "planned":
            explanation = f"since {step.reason}"
        else:
            explanation = f"for {metric} (queue {_rounded(sample.queue)}, GPU {_rounded(sample.gpu_percent)} % in all)"
        return (
            f"{step.change.before} -> {step.change.after} after {step.to_scale_s} s {explanation}; "
            f"{step.mean_batch} rows in a batch, {figures.outcome_text(step.report)}"
        )

    def _plan(self) -> str:
        scaling.use_planner(self.kube, DIGITS)
        return "instead of digits.yaml's rules; the count stays"

    def _back(self, watch: Watch) -> str:
        scaling.use_rules(self.kube, DIGITS)
        return self._down(watch, "planned")

    def _down(self, watch: Watch, cause: str) -> str:
        seconds = scaling.step_down(watch)
        self.figures[f"{cause}_step_back_to_one_s"] = seconds
        return f"after {seconds} s"

    def _memory(self) -> str:
        agent, pod = footprint.balancer_rss_mib(self.kube, DIGITS)
        self.figures["operator_rss_mib"] = footprint.operator_rss_mib(self.kube)
        self.figures["agent_rss_mib"], self.figures["balancer_pod_mib"] = agent, pod
        self.figures["versions"] = footprint.versions(self.kube, DIGITS)
        return f"operator {self.figures['operator_rss_mib']} MiB, agent {agent} MiB, balancer pod {pod} MiB"

    def _rest(self) -> str:
        names = footprint.apply_idle_models(self.kube, image=self.installed.triton_image)
        try:
            seconds = footprint.wait_for_idle_models(self.kube, names)
            writes = footprint.writes_at_rest(self.kube, seconds=self.options.rest_s)
            self.figures["operator_rss_mib"] = footprint.operator_rss_mib(self.kube)
        finally:
            footprint.delete_idle_models(self.kube, names)
        self.figures["writes_at_rest"] = writes
        self.figures["writes_at_rest_seconds"] = self.options.rest_s
        return (
            f"{writes} writes; all {len(names)} served after {seconds:.0f} s; "
            f"operator {self.figures['operator_rss_mib']} MiB"
        )


def up(options: Options) -> int:
    """Start everything, and run the demo. Return 1 if a budget was missed or a step failed, otherwise 0."""
    with Screen() as screen:
        try:
            installed = install(options.cluster, hpa_sync=options.hpa_sync, step=screen.step)
        except DemoError as error:
            screen.end(str(error), ok=False)
            return 1
        screen.end()
        demo = Demo(options, screen, installed)
        try:
            demo.run()
        finally:
            installed.kube.close()
            demo.figures |= figures.from_tests()
            figures.write(demo.figures)
    rows = figures.rows(
        demo.figures,
        skipped=_LONG_PARTS if options.quick else frozenset(),
        unjudged=frozenset() if installed.kube.reachable else figures.BY_TUNNEL,
    )
    screen.console.print(figures.table(rows))
    _print_summary(screen, options, installed.kube, rows, demo)
    # What `make test` measured is shown, and fails there.
    return (
        1 if demo.failed_steps or any(row.ok is False and row.budget.key not in figures.BY_TESTS for row in rows) else 0
    )


def _print_summary(screen: Screen, options: Options, kube: Kube, rows: list[figures.Row], demo: Demo) -> None:
    out = screen.console.out
    for line in demo.failed_steps:
        out(f"broken: {line}")
    missed = [row.budget for row in rows if row.ok is False]
    for heading, by_tests in (("missed", False), ("missed by the last make test", True)):
        if names := [budget.title for budget in missed if (budget.key in figures.BY_TESTS) is by_tests]:
            out(f"{heading}: {'; '.join(names)}")
    out(f"figures: {figures.FILE.relative_to(models.REPOSITORY)}")
    out("\nIt stays up. Look around:")
    out(f"  export KUBECONFIG={shlex.quote(str(kube.kubeconfig))}")
    out(f'  export PATH={shlex.quote(str(kube.programs))}:"$PATH"')
    scope = "" if kube.namespace == "default" else f" -n {kube.namespace}"
    out(f"  kubectl get mdep,hpa,pods{scope}")
    out(f"  kubectl describe mdep {DIGITS}{scope}")
    out(f"  kubectl logs -n {SYSTEM} deploy/halcyon -f")
    if kube.reachable:
        http, grpc = (kube.address(DIGITS, port) for port in (HTTP_PORT, GRPC_PORT))
        out(f"  curl http://{http}/v2/models/{DIGITS}        # its inputs and outputs; gRPC is at {grpc}")
        bench = f".venv/bin/halcyon bench --url grpc://{grpc} --model {DIGITS} --callers 96 --duration 60s"
        out(f"  {bench}     # and watch it scale")
    else:
        out(f"  kubectl port-forward{scope} service/{DIGITS} {HTTP_PORT} {GRPC_PORT}")
    cluster_argument = (
        "" if options.cluster == "halcyon" else f" CLUSTER={EXISTING if not kube.reachable else options.cluster}"
    )
    out(f"End it with: make demo-down{cluster_argument}")


def _failure_counts(reports: list[Report]) -> dict[str, int]:
    kinds: dict[str, int] = {}
    for report in reports:
        for kind, count in report.failures.items():
            kinds[kind] = kinds.get(kind, 0) + count
    return kinds


def _rounded(value: Any) -> str:
    return "?" if value is None else f"{value:.0f}"
