"""The sequence of the demo's steps. Each step measures, is shown, and records its figures for build/demo.json."""

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
"""Time limit for a scaling step in seconds: the HPA's sync interval of 15 s, the 15 s mean of the signals, and a
margin."""
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
    """The options of `up`."""

    cluster: str = "halcyon"
    quick: bool = False
    rest_s: float = 60
    hpa_sync: str = "15s"


@dataclass
class Demo:
    """The steps on a cluster with Halcyon, and the figures that they measure."""

    options: Options
    screen: Screen
    on: Installed
    figures: Figures = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    _counted: list[Report] = field(default_factory=list)

    @property
    def kube(self) -> Kube:
        """The cluster."""
        return self.on.kube

    def run(self) -> None:
        """Run all steps. If one fails, the failure is shown, and the steps that don't depend on it continue."""
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
        self.figures["requests"] = sum(report.requests for report in self._counted)
        self.figures |= figures.failures(kinds := _kinds(self._counted))
        if kinds:
            self.figures["failures"] = kinds

    def _step(self, title: str, work: Callable[[], str]) -> bool:
        self.screen.step(title)
        try:
            result = work()
        except (DemoError, LoadFailedError) as error:
            self.broken.append(f"{title}: {error}")
            self.screen.end(str(error), ok=False)
            return False
        self.screen.end(result)
        return True

    def _apply(self) -> str:
        models.delete(self.kube, DIGITS)
        documents = models.documents()
        documents["ModelDeployment"] = models.digits(image=self.on.triton_image)
        manifest = (
            models.MANIFEST.read_text()
            if self.on.triton_image is None
            else "\n---\n".join(map(models.as_text, documents.values()))
        )
        found = cold_start(self.kube, DIGITS, manifest=manifest)
        self.figures["apply_to_first_answer_s"] = found.first_answer_s
        self.figures["cold_start_s"] = found.phases
        return "  ".join(f"{phase} {seconds:.1f}" for phase, seconds in found.phases.items())

    def _accuracy(self) -> str:
        found = serving.accuracy(self.kube, DIGITS)
        self.figures["accuracy"] = min(found.http, found.grpc)
        return f"{found.http:.1%} over HTTP, {found.grpc:.1%} over gRPC, of {found.digits} digits"

    def _batching(self) -> str:
        compared = serving.compared_models(image=self.on.triton_image)
        batched, unbatched = names = [document["metadata"]["name"] for document in compared]
        self.kube.apply(*compared)
        try:
            models.wait_until_served(self.kube, *names)
            found = serving.compare_batching(self.kube, batched=batched, unbatched=unbatched)
        finally:
            models.delete(self.kube, *names)
        self._counted += [found.batched, found.unbatched]
        self.figures["throughput_batched_rps"] = found.batched.rate_rps
        self.figures["throughput_unbatched_rps"] = found.unbatched.rate_rps
        self.figures["batching_gain"] = found.gain
        return (
            f"{found.batched.rate_rps:.0f} against {found.unbatched.rate_rps:.0f} req/s: {found.gain} x, "
            f"{found.batched.mean_batch} rows in a batch"
        )

    def _channel(self) -> str:
        name = "digits-three"
        self.kube.apply(models.variant(name, replicas=3, image=self.on.triton_image))
        try:
            models.wait_until_served(self.kube, name, replicas=3)
            report = serving.one_channel(self.kube, name, duration_s=10)
        finally:
            models.delete(self.kube, name)
        self._counted.append(report)
        self.figures["channel_share"] = [round(share, 3) for share in report.shares]
        return f"{figures.shown(report.shares)} of {report.answered} requests"

    def _scaling(self) -> None:
        """Scale up by queue, GPU utilization and planner, and down after each, while a probe counts failures."""
        probes = scaling.Probes(self.kube, DIGITS)
        with Watch(self.kube, DIGITS, tell=self.screen.look) as watch, probes:
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
        self._counted += probes.reports

    def _up(self, watch: Watch, load: Load, what: str) -> str:
        self.screen.load(f"{load.model}: {'GPU' if what == 'gpu' else what} step")
        says = scaling.planner_says if what == "planned" else None
        try:
            found = scaling.step_up(self.kube, watch, load, hold_s=10, tell=self.screen.report, says=says)
        finally:
            self.screen.load("")
        self._counted.append(found.report)
        if what == "planned":
            rejected = figures.failures(found.report.failures)["rejected_requests"]
            self.figures["planned_rejected_share"] = round(rejected / max(1, found.report.requests), 4)
        metric = {"queue": "queueDepth", "gpu": "gpuUtilization", "planned": "req/s"}[what]
        self.figures[f"{what}_step_to_scale_s"] = found.to_scale_s
        if what == "queue":
            self.figures["mean_batch"] = found.mean_batch
        look = found.change.look
        if metric not in found.reason:
            raise DemoError(f"the HPA went to {found.change.after}, but not for {metric}: {found.reason}")
        if what == "planned":
            why = f"since {found.reason}"
        else:
            why = f"for {metric} (queue {_number(look.queue)}, GPU {_number(look.gpu_percent)} % in all)"
        return (
            f"{found.change.before} -> {found.change.after} after {found.to_scale_s} s {why}; "
            f"{found.mean_batch} rows in a batch, {figures.answers(found.report)}"
        )

    def _plan(self) -> str:
        scaling.let_plan(self.kube, DIGITS)
        return "instead of digits.yaml's rules; the count stays"

    def _back(self, watch: Watch) -> str:
        scaling.let_rules_decide(self.kube, DIGITS)
        return self._down(watch, "planned")

    def _down(self, watch: Watch, what: str) -> str:
        seconds = scaling.step_down(watch)
        self.figures[f"{what}_step_back_to_one_s"] = seconds
        return f"after {seconds} s"

    def _memory(self) -> str:
        agent, pod = footprint.balancer_rss_mib(self.kube, DIGITS)
        self.figures["operator_rss_mib"] = footprint.operator_rss_mib(self.kube)
        self.figures["agent_rss_mib"], self.figures["balancer_pod_mib"] = agent, pod
        self.figures["versions"] = footprint.versions(self.kube, DIGITS)
        return f"operator {self.figures['operator_rss_mib']} MiB, agent {agent} MiB, balancer pod {pod} MiB"

    def _rest(self) -> str:
        names = footprint.apply_idle_models(self.kube, image=self.on.triton_image)
        try:
            seconds = footprint.wait_for_idle_models(self.kube, names)
            written = footprint.writes_at_rest(self.kube, seconds=self.options.rest_s)
            self.figures["operator_rss_mib"] = footprint.operator_rss_mib(self.kube)
        finally:
            footprint.delete_idle_models(self.kube, names)
        self.figures["writes_at_rest"] = written
        self.figures["writes_at_rest_seconds"] = self.options.rest_s
        return (
            f"{written} writes; all {len(names)} served after {seconds:.0f} s; "
            f"operator {self.figures['operator_rss_mib']} MiB"
        )


def up(options: Options) -> int:
    """Start everything and measure. Return 0, or 1 if a budget was missed or a step failed."""
    with Screen() as screen:
        try:
            on = install(options.cluster, hpa_sync=options.hpa_sync, step=screen.step)
        except DemoError as error:
            screen.end(str(error), ok=False)
            return 1
        screen.end()
        demo = Demo(options, screen, on)
        try:
            demo.run()
        finally:
            on.kube.close()
            demo.figures |= figures.from_tests()
            figures.write(demo.figures)
    rows = figures.rows(
        demo.figures,
        skipped=_LONG_PARTS if options.quick else frozenset(),
        unjudged=frozenset() if on.kube.reachable else figures.BY_TUNNEL,
    )
    screen.console.print(figures.table(rows))
    _tell(screen, options, on.kube, rows, demo)
    # What `make test` measured is shown, and fails there.
    return 1 if demo.broken or any(row.ok is False and row.budget.key not in figures.BY_TESTS for row in rows) else 0


def _tell(screen: Screen, options: Options, kube: Kube, rows: list[figures.Row], demo: Demo) -> None:
    out = screen.console.out
    for line in demo.broken:
        out(f"broken: {line}")
    missed = [row.budget for row in rows if row.ok is False]
    for who, by_tests in (("missed", False), ("missed by the last make test", True)):
        if names := [budget.what for budget in missed if (budget.key in figures.BY_TESTS) is by_tests]:
            out(f"{who}: {'; '.join(names)}")
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
    where = "" if options.cluster == "halcyon" else f" CLUSTER={EXISTING if not kube.reachable else options.cluster}"
    out(f"End it with: make demo-down{where}")


def _kinds(reports: list[Report]) -> dict[str, int]:
    kinds: dict[str, int] = {}
    for report in reports:
        for kind, count in report.failures.items():
            kinds[kind] = kinds.get(kind, 0) + count
    return kinds


def _number(value: Any) -> str:
    return "?" if value is None else f"{value:.0f}"
