"""Which of the public reports (cases) are right, by the tests of each case. Row 6.1 of docs/quality/right.md.

    python -m benchmarks.right.cases [CASE...]

A case is right if it has tests and all of them pass. Tests that need the embedded cluster run as every other test: with
real parts, and for 5 to 60 s each. Without CASE, all cases are tried.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.quality.rows import ROOT, Row, raw, record

_TIMEOUT_S = 900


@dataclass(frozen=True)
class Case:
    """A public report of a failure of some serving system, tried on this one."""

    number: str
    right: str
    """Right behaviour, in one sentence."""
    tests: tuple[str, ...] = ()
    """Tests of it: files, with `::` and a name or with ` -k ` and an expression. None: there is no test."""


_FETCH, _RENDER, _CLUSTER = "tests/integration/fetch", "tests/integration/render", "tests/integration/cluster"
_CLIENTS, _AGENT = "tests/integration/clients", "tests/integration/agent"
_OWN = f"{_RENDER}/test_server_start.py::test_triton_serves_on_the_address_family_of_its_pod"
CASES = (
    Case(
        "01",
        "a Python model with its own stub loads, whatever the mode of the file",
        (_OWN, "tests/unit/fetch/test_archive.py::test_a_file_keeps_its_execute_bit_and_no_more_of_its_mode"),
    ),
    Case(
        "02",
        "a model that answers later than `execute` returns is scaled by evidence",
        (
            f"{_AGENT}/test_early_return.py",
            "tests/unit/scaling/planner/test_answer_evidence.py",
            "tests/unit/balancer/runtime/test_concurrency_finder.py -k before_their_answers",
        ),
    ),
    Case(
        "03", "a burst on a slow unbatched model spreads over new pods", (f"{_AGENT}/test_slow_model.py -k new_pods",)
    ),
    Case(
        "04",
        "folder markers of a bucket are folders",
        (f"{_FETCH}/test_bucket.py", f"{_FETCH}/test_download.py -k console"),
    ),
    Case(
        "05",
        "all parts serve on a network with IPv6 alone",
        (
            _OWN,
            "tests/integration/agent/test_ipv6.py",
            "tests/integration/metricsapi/test_ports.py -k ipv6",
            f"{_FETCH}/test_download.py -k ipv6",
            f"{_CLUSTER}/test_ipv6_cluster.py",
        ),
    ),
    Case("06", "a model writes caches below its home, and has a user's name", (_OWN,)),
    Case(
        "07",
        "clients that read configuration and statistics work through the balancer",
        (
            "tests/integration/balancer/test_client_metadata.py",
            f"{_CLIENTS}/test_open_endpoints.py -k reads_of_the_list",
        ),
    ),
    Case(
        "09",
        "a rollout on a ReadWriteOnce claim says at once that it can't surge, and replaces if it may",
        ("tests/unit/control/rollout/test_interference.py -k volume", f"{_CLUSTER}/test_interference.py -k volume"),
    ),
    Case(
        "10",
        "pods run with the user ids of their namespace",
        (
            "tests/unit/render/test_placement.py",
            "tests/integration/balancer/test_assigned_user.py",
        ),
    ),
    Case(
        "11",
        "downloads go through the site's proxy, and trust its certificates",
        (
            f"{_FETCH}/test_download.py -k proxy",
            f"{_FETCH}/test_download.py -k certificate",
            "tests/unit/render/test_download.py",
        ),
    ),
    Case(
        "12", "requests that make a model raise take out no pod", (f"{_AGENT}/test_dead_backends.py -k wrong_requests",)
    ),
    Case(
        "17",
        "keep-alive pings of gRPC clients are accepted in every mode",
        (f"{_CLIENTS}/test_far_clients.py -k pings",),
    ),
    Case(
        "18",
        "a large gRPC request from afar takes at most twice the time of a direct one",
        (f"{_CLIENTS}/test_far_clients.py -k at_most_twice",),
    ),
    Case("21", "streams end before their pod does", (f"{_CLIENTS}/test_streams_of_triton.py",)),
    Case(
        "22",
        "a model that batches by itself gets as many requests as it can take",
        (f"{_AGENT}/test_slow_model.py -k engine", "tests/unit/balancer/runtime/test_concurrency_finder.py"),
    ),
    Case("23", "a dead stub is repaired, of the only replica too", (f"{_AGENT}/test_dead_backends.py -k only_pod",)),
    Case(
        "24",
        "a warm-up that names some inputs leaves the others to config.pbtxt, or names them",
        ("tests/unit/model_config/test_merge.py",),
    ),
    Case(
        "29",
        "times above one second a second are shown",
        (
            "tests/unit/signals/test_observation_store.py -k all_their_time",
            "tests/unit/signals/test_mean_in_progress.py",
        ),
    ),
    Case(
        "30",
        "a canary that is much worse is rolled back within seconds",
        (
            "tests/simulator/test_canary_rollouts.py -k fault_ends",
            "tests/unit/control/rollout/test_canary_analysis.py -k third_second",
        ),
    ),
)


def try_case(case: Case) -> dict[str, object]:
    """Run the tests of a case, and return which passed and how long they took, in seconds."""
    began, failed = time.monotonic(), []
    for test in case.tests:
        node, _, expression = test.partition(" -k ")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", node]
        done = subprocess.run(
            [*command, *(["-k", expression] if expression else [])],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        # Without a test that matches, pytest ends with status 5.
        if done.returncode:
            failed.append({"test": test, "status": done.returncode, "end": done.stdout[-800:]})
    is_right = bool(case.tests) and not failed
    return {
        "case": case.number,
        "what": case.right,
        "right": is_right,
        "tests": case.tests,
        "failed": failed,
        "took_s": round(time.monotonic() - began, 1),
    }


def main(selected: Sequence[str]) -> int:
    """Try the cases, print a line for each, and record the row; return 1 if a test of theirs fails.

    Results of earlier runs stay for cases that aren't selected, so that the cases can be tried in parts.
    """
    by_case = _earlier_results()
    for case in CASES:
        if not selected or case.number in selected:
            by_case[case.number] = try_case(case)
            print(json.dumps(by_case[case.number]), flush=True)
    results = [by_case.get(case.number, {"case": case.number, "right": False}) for case in CASES]
    reasons = {
        "no test is listed for": [case.number for case in CASES if not case.tests],
        "not tried:": [case.number for case in CASES if case.tests and case.number not in by_case],
        "a test fails for": [number for number, result in by_case.items() if result.get("failed")],
    }
    row = Row(
        "6.1",
        "cases from public reports that are right, by a test of each",
        {"right": sum(bool(result["right"]) for result in results), "cases": len(CASES)},
        f"{len(CASES)} right",
        [("right", len(CASES), "==")],
        command="python -m benchmarks.right.cases",
        stand_ins="pods of the control-plane tests are KWOK's; tests name their own",
        why="; ".join(f"{text} {', '.join(numbers)}" for text, numbers in reasons.items() if numbers),
        n=len(CASES),
        raw=results,
    )
    record("right", [row])
    return int(any(by_case[case.number].get("failed") for case in CASES if case.number in (selected or by_case)))


def _earlier_results() -> dict[str, dict[str, object]]:
    """Return the results of earlier runs, by case."""
    return {str(result["case"]): result for result in raw("right", "6.1") or () if "took_s" in result}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
