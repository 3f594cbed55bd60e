"""Commands and shell blocks of the pages that are not run in the cluster of these tests, or whose output isn't compared.

They are identified by their prefix, a block by its page and the beginning of its first line. Each has the place where it is
run, or the reason why it isn't.
"""

from collections.abc import Mapping
from typing import TypeVar

from e2e.shown_output import Step

Entry = TypeVar("Entry")

INSTALL_PAGE, INSTALL_TEST = "install.md", "e2e/guides/test_install_page.py"

RUN_BY = {
    "make": "e2e/readme/test_readme.py",
    "KUBECONFIG=~/.kube/config make demo": "e2e/readme/test_readme.py",
    "python -m images push": "e2e/readme/test_readme.py",
    "docker build -t": "images/test_docker.py",
    "helm": INSTALL_TEST,
    "kubectl delete modeldeployments --all": INSTALL_TEST,
    "kubectl delete crd": INSTALL_TEST,
    "kubectl kustomize": INSTALL_TEST,
    "kubectl -n halcyon-system port-forward": "e2e/guides/test_dashboard_page.py",
    "kubectl -n NAMESPACE create token": "e2e/guides/test_dashboard_page.py",
    "oauth2-proxy": "tests/integration/dashboard/test_single_sign_on.py",
    "kubectl logs POD -c fetch": "e2e/scenarios/test_download.py",
    "halcyon promote": "tests/integration/operator/test_rollout.py",
    "halcyon abort": "tests/integration/operator/test_rollout.py",
    "halcyon diagnose": "tests/integration/cli/test_commands.py",
    "python3 -m venv": "tests/integration/cli/test_wheel.py",
    "pip install": "tests/integration/cli/test_wheel.py",
}
"""`make` targets are run by continuous integration or manually. Another test checks that they exist."""

NOT_RUN = {
    "kind create cluster": "its node image is in a registry that our machines don't reach",
    "kubectl patch node kind-control-plane": "the same; the embedded cluster's node is patched the same way",
    "python -m images build --fresh": "new bases each time: what a machine without a cache does by itself",
    "docker build --tag": "a model of the reader's; e2e/model_image.py makes such an image without docker",
    "docker push": "the same",
    "git ls-remote": "the hub is in a network that our machines don't reach",
    "cosign": "no image is published or signed yet",
    "gh attestation": "the same",
}

_UNWELL = "tests/unit/monitoring/test_runbook_outputs.py"

SHOWN_BY = {
    "cli.md: halcyon": "tests/unit/cli/commands/test_app.py",
    "scaling.md: halcyon explain": "tests/unit/cli/explain/test_documented_examples.py",
    "downloads.md: halcyon status": "tests/integration/cli/test_downloads.py",
    "upgrade.md: halcyon refresh": "tests/integration/cli/test_refresh.py",
    "HalcyonAutoscalerConflict.md: kubectl halcyon explain": _UNWELL,
    "HalcyonBalancerDegraded.md: kubectl -n NAMESPACE get": _UNWELL,
    "HalcyonBalancerDegraded.md: kubectl -n NAMESPACE logs": _UNWELL,
    "HalcyonGPUIdle.md: kubectl halcyon explain": _UNWELL,
    "HalcyonMetricMissing.md: kubectl halcyon explain": _UNWELL,
    "HalcyonModelAtMax.md: kubectl halcyon explain": _UNWELL,
    "HalcyonModelLoadFailed.md: kubectl get mdep": _UNWELL,
    "HalcyonModelNotReady.md: kubectl get mdep": _UNWELL,
    "HalcyonModelNotReady.md: kubectl halcyon get": _UNWELL,
    "HalcyonNoLeader.md: kubectl -n halcyon-system logs": _UNWELL,
    "HalcyonPermissionsMissing.md: kubectl -n halcyon-system logs": _UNWELL,
    "HalcyonReconcileErrors.md: kubectl -n halcyon-system logs": _UNWELL,
    "HalcyonRolloutBlocked.md: kubectl halcyon get": _UNWELL,
    "HalcyonRolloutBlocked.md: kubectl get mdep": _UNWELL,
    "HalcyonSpecRejected.md: kubectl get mdep": _UNWELL,
}
"""Commands whose output is that of a state which the cluster of `test_commands` doesn't have, and the test that compares it.

They are run there, too: they end well. Outputs of cli.md are golden files of the tests of its commands.
"""


BLOCKS_RUN_BY = {
    "README.md: make kind": "benchmarks/adoption/first_model.py",
    "README.md: make images push": "e2e/readme/test_readme.py",
    "README.md: make demo": "e2e/readme/test_readme.py",
    "measure.md: kubectl apply": "e2e/scenarios/test_bench.py",
    "measure.md: address=": "tests/integration/measure/test_answer.py",
    'measure.md: halcyon bench --url "grpc': "tests/integration/measure/test_engine.py",
    'measure.md: halcyon bench --url "http': "tests/unit/cli/commands/measure/test_report.py",
    "measure.md: halcyon bench --again": "tests/unit/cli/bench/test_again.py",
    "batch.md: halcyon batch": "tests/integration/cli/test_batch_command.py",
    "batch.md: kubectl create secret": "tests/integration/batch/test_buckets.py",
}
"""Shell blocks that `test_guides` doesn't run because a test of its own does."""

BLOCKS_NOT_RUN = {
    "batch.md: docker build": "pyarrow comes from an index that a build here doesn't reach",
    "batch.md: kubectl create configmap": "hooks.py is the reader's own file",
    "energy.md: halcyon bench": "no server here has a GPU whose energy is counted",
    "incidents.md: helm template": "skopeo copies between registries that our machines don't reach",
}
"""Shell blocks that none of our machines runs."""

BLOCKS = BLOCKS_RUN_BY | BLOCKS_NOT_RUN

WITHOUT_CLUSTER = {"docs/concepts/scaling.md", "docs/guides/analyse.md", "docs/simulator.md"}
"""Pages whose shell blocks need no cluster."""

MEASURED = {
    "analyse.md: halcyon variants": "sizes are compared by tests/integration/measure/test_variants.py",
    "batching.md: halcyon bench": "rates and latencies of this machine",
    "batching.md: pod=": "the same",
    "canary.md: address=": "each of two balancers shares out its own requests",
    "migrating.md: mkdir": "the last digits of a probability",
    "scaling.md: sed": "rates of this machine",
    "troubleshooting.md: kubectl apply": "balancers that are ready by then",
    "scaling.md: halcyon scale": "the same",
    "demo.md: python -m e2e.load": "the same",
}
"""Shell blocks and commands whose output is compared without its numbers, with what the numbers are."""

NOT_COMPARED = {
    'analyse.md: halcyon analyse "$folder/digits.onnx" --roofline': "peaks of this machine, and a verdict that depends on them",
    "gpus.md: kubectl get nodes -o jsonpath": "no node here has MIG slices",
    "placement.md: kubectl get pods": "the model of this cluster has no limits",
}
"""Shell blocks and commands that are run, and whose output isn't compared, with the reason."""

_AVAILABLE = {
    "  Progressing    True    NewReplicaSetAvailable\n": "",
    "False   MinimumReplicasUnavailable": "True MinimumReplicasAvailable Progressing True NewReplicaSetAvailable",
}
SUBSTITUTES = {
    "cost.md: halcyon top": {
        "  COST/H EUR": "",
        "resnet50  5/5    1-8    12/40  61    5     4.00        Ready": "...",
    },
    "demo.md: python -m e2e.load ADDRESS:8001 MODEL --channels": {
        '"digits-a-7cd884bbb-cbxt9": 2045,\n    "digits-a-7cd884bbb-rbpgb": 2066': "...",
    },
    "incidents.md: halcyon pause --all": {
        "modeldeployment.serving.halcyon.dev/bert paused in namespace team\n": "",
        "2 of 3": "1 of 1",
    },
    "incidents.md: halcyon history": {
        "3         digits-c2d65bc95f  failed   2m   load failed: no such tensor: INPUT0\n": "",
        "nvcr.io/nvidia/tritonserver:25.09-py3": "localhost/tritonserver-cpu:24.10 ...",
    },
    "incidents.md: halcyon undo": {"revision 2": "revision 1"},
    "incidents.md: halcyon status": {"1 of 3 pods are ready": "...", "3 of 3": "..."},
    "HalcyonAutoscalerConflict.md: kubectl get hpa": {
        "keda-hpa-digits": "digits",
        "9/10 (avg)   1         8         5": "...",
    },
    "HalcyonColdStartSlow.md: kubectl -n NAMESPACE describe": {
        "gpu-1": "node",
        "Successfully pulled image ... in 4m49s ...": "...",
    },
    "HalcyonMetricsAPIErrors.md: kubectl describe": {
        "SucceededGetScale        the HPA controller was able to get the target's current scale": "...",
        "False   FailedGetExternalMetric  the HPA was unable to compute the replica count: unable to get": "True",
    },
    "HalcyonOperatorDown.md: kubectl -n halcyon-system get": {
        "0/1     CrashLoopBackOff   6 (2m48s ago)": "1/1 Running 0",
        "0/1     CrashLoopBackOff   6 (2m43s ago)": "1/1 Running 0",
    },
    "HalcyonOperatorDown.md: kubectl -n halcyon-system describe": {
        "0 available | 2 unavailable": "2 available | 0 unavailable",
        **_AVAILABLE,
    },
    "HalcyonPermissionsMissing.md: kubectl auth can-i": {"no": "yes"},
    "HalcyonReplicaMissing.md: kubectl -n halcyon-system get": {
        "node-1": "node",
        "0/1     Pending   0          16m   <none>         <none>": "1/1 Running 0 16m 10.200.128.3 node",
    },
    "HalcyonReplicaMissing.md: kubectl -n halcyon-system describe": {
        "1 available | 1 unavailable": "2 available | 0 unavailable",
        **_AVAILABLE,
    },
}
"""Words of a page that are of another model, or of a cluster that is unwell, and those of the cluster of these tests."""


def reason(command: str) -> str | None:
    """Return the reason why `test_commands` doesn't run this command; None if it does."""
    return next((explanation for start, explanation in (RUN_BY | NOT_RUN).items() if command.startswith(start)), None)


def is_not_run(step: Step) -> bool:
    """Return True if no test runs this command."""
    return step.script.startswith(tuple(NOT_RUN))


def is_compared(step: Step) -> bool:
    """Return True if the tests of this folder compare the output of this command with its page."""
    if entry(step, SHOWN_BY | NOT_COMPARED) is not None:
        return False
    test = reason(step.script)
    return test is None or (test == INSTALL_TEST and step.page == INSTALL_PAGE)


def entry(step: Step, values: Mapping[str, Entry]) -> Entry | None:
    """Return what a list has about a shell block or a command; None if it isn't listed."""
    return next((value for start, value in values.items() if step.name.startswith(start)), None)


def expected(step: Step) -> str:
    """Return the output to compare: the page's, with the substitutes for this cluster."""
    output = step.output or ""
    for words, instead in (entry(step, SUBSTITUTES) or {}).items():
        output = output.replace(words, instead)
    return output
