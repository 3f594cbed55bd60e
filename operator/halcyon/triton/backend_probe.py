"""Examination of pods whose backend may be dead.

The evidence is the exit of a Python stub process, or the result of the agent's own probe.

One of these facts proves that a backend is dead:

- Triton's repository index lists the folder that the container creates when a stub process ends (`repository_marker`).
- The probe fails with Triton's message for a dead stub. Every request to a dead stub gets this message, so no earlier
  success is needed.
- The probe fails three times without a success, although it has succeeded on this revision.
- No request is answered, not even the probe, for ten times the longest execution and at least 30 s.

The probe is an inference request with zeros, built from the first warm-up request of the model's configuration, or from
its inputs. It is never a copy of a client's request. It fills a whole batch, because Triton fails all requests of a
batch together, so a client's invalid request in the same batch would make the probe fail. If the probe can't fill a
batch, only Triton's message counts as a proof. The same applies if another model of the pod, such as a step of an
ensemble, may put the probe into a batch with clients' requests.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from halcyon.triton.client import Answer, TritonClient
from halcyon.triton.dead_backend import DeadBackends, ProbedRevision, Suspicion
from halcyon.triton.errors import TritonError
from halcyon.triton.json_log import log
from halcyon.triton.pod_revision import revision_of
from halcyon.triton.probe_request import MAX_PROBED_INSTANCES, Probe, build, may_share_batches
from halcyon.triton.repository_index import DEAD_STUB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from halcyon.triton.client import Endpoint

MAX_PROBE_INTERVAL_S = 8.0
"""Maximum time, in seconds, between two probes of a pod whose clients' requests fail although the probes succeed."""
MAX_EXAMINED = 4
"""Maximum number of pods that are examined at the same time. It limits the memory used for probes."""
MAX_PROBES = MAX_EXAMINED * MAX_PROBED_INSTANCES
"""Maximum number of probes in progress at the same time."""
FAILED_PROBES = 3
FORGOTTEN_AFTER_S = 60.0
_PAUSE_S = 0.3
_MAX_LOAD = 0.1
"""Maximum share of a pod's time that may be spent on probes of its backend."""


class BackendProbes:
    """Examinations of a model's pods with possibly dead backends.

    At most one examination at a time runs for each pod.
    """

    def __init__(
        self,
        client: TritonClient,
        dead: DeadBackends,
        clock: Callable[[], float],
        on_dead: Callable[[], None] = lambda: None,
    ) -> None:
        """Create an instance without running examinations.

        Args:
            client: client of the pods.
            dead: state of the pods, in which the proofs are recorded.
            clock: returns monotonic time in seconds.
            on_dead: called whenever a backend is proved dead, except for repeated proofs.
        """
        self._client, self._dead, self._clock, self._on_dead = client, dead, clock, on_dead
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._next: dict[tuple[str, Suspicion], tuple[float, int]] = {}
        """Earliest time of the next probe and number of successive probes so far, by pod and suspicion."""
        self._places = asyncio.Semaphore(MAX_EXAMINED)

    def examine(self, endpoints: Iterable[Endpoint], suspects: Mapping[str, Suspicion]) -> None:
        """Start an examination of each pod in `suspects` that is not being examined yet.

        The method returns without waiting for the results.
        """
        listed, now = {endpoint.pod: endpoint for endpoint in endpoints}, self._clock()
        self._next = {
            key: due for key, due in self._next.items() if key[0] in listed and now < due[0] + FORGOTTEN_AFTER_S
        }
        for pod, suspicion in suspects.items():
            if pod not in self._tasks:
                task = self._tasks[pod] = asyncio.create_task(self._examine(listed[pod], suspicion))
                task.add_done_callback(partial(self._tasks.pop, pod))

    async def close(self) -> None:
        """Cancel all examinations. The state of the examined pods is not changed."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _examine(self, endpoint: Endpoint, suspicion: Suspicion) -> None:
        try:
            async with self._places:
                proof = await self._proof(endpoint, suspicion)
        except (TritonError, TimeoutError):
            return  # The next sample begins another examination.
        except Exception as error:  # noqa: BLE001 - an unexpected configuration must not end the agent
            log("error", "a pod can't be examined", pod=endpoint.pod, error=repr(error))
            return
        if proof is not None:
            pod, is_partial = endpoint.pod, suspicion == "partly"
            is_known = pod in self._dead.dead
            if not is_known:
                log("warning", "the backend of a pod is dead", pod=pod, reason=proof, partial=is_partial)
            is_known = is_known and (pod in self._dead.partial) == is_partial
            self._dead.proved(pod, proof, partial=is_partial)
            if not is_known:
                self._on_dead()

    async def _proof(self, endpoint: Endpoint, suspicion: Suspicion) -> str | None:
        """Return the proof that the backend of a pod is dead, as text, or None if there is none."""
        if suspicion != "idle" and (ended := await self._stub_exit(endpoint)) is not None:
            return ended
        key = endpoint.pod, suspicion
        due, count = self._next.get(key, (float("-inf"), 0))
        revision = self._dead.revisions.setdefault(revision_of(endpoint.pod), ProbedRevision())
        if self._clock() < due or (suspicion == "silent" and not revision.succeeded):
            return None
        config = await self._client.config(endpoint.address)
        revision.tried = True
        if (probe := build(config, rows=1 if suspicion == "partly" else None)) is None:
            return None
        began = self._clock()
        proof = await (
            self._probe_instances(endpoint, probe, revision)
            if suspicion == "partly"
            else self._probe_repeatedly(endpoint, probe, revision, suspicion, config)
        )
        now = self._clock()
        interval_s = min(2.0 ** min(count, 10), MAX_PROBE_INTERVAL_S)
        self._next[key] = (now + max(interval_s, (now - began) / _MAX_LOAD), count + 1)
        return proof

    async def _stub_exit(self, endpoint: Endpoint) -> str | None:
        return (await self._client.index(endpoint.address, pod=endpoint.pod)).stub_exit

    async def _probe_instances(self, endpoint: Endpoint, probe: Probe, revision: ProbedRevision) -> str | None:
        """Send a few probes for each instance of the model.

        If one of them fails with Triton's message for a dead stub, return the proof that the backend is dead. Otherwise
        return None.
        """
        for _ in range(2):
            sent = (self._send(endpoint, probe, revision.hang_s) for _ in range(probe.instances))
            for answer in await asyncio.gather(*sent):
                if _is_failure(answer) and (words := DEAD_STUB.search(answer.text)):
                    return await self._stub_exit(endpoint) or words[0]
        return None

    async def _is_alone(self, endpoint: Endpoint, probe: Probe, config: Mapping[str, Any]) -> bool:
        """Return whether the probe never shares a batch with clients' requests, in any model of the pod."""
        if not probe.is_alone:
            return False
        names = (await self._client.index(endpoint.address, pod=endpoint.pod)).companions
        others = {name: await self._client.config(endpoint.address, model=name) for name in names}
        return not may_share_batches(config, others, probe.rows)

    async def _probe_repeatedly(
        self,
        endpoint: Endpoint,
        probe: Probe,
        revision: ProbedRevision,
        suspicion: Suspicion,
        config: Mapping[str, Any],
    ) -> str | None:
        answer = Answer(0, "")
        for number in range(FAILED_PROBES):
            began = self._clock()
            try:
                answer = await self._send(endpoint, probe, revision.hang_s)
            except TimeoutError:
                quiet_s = self._dead.quiet_s(endpoint.pod, self._clock())
                if suspicion != "silent" or not revision.succeeded or quiet_s < revision.hang_s:
                    return None
                return (
                    f"no request was answered for {quiet_s:.0f} s, including a probe; the longest execution took "
                    f"{revision.longest_s:.1f} s"
                )
            if not _is_failure(answer):
                if answer.status == 503:  # the queue is full, so the probe was not tested
                    revision.tried = False
                if answer.status == 200:
                    revision.succeeded = True
                    revision.longest_s = max(revision.longest_s, self._clock() - began)
                return None
            if words := DEAD_STUB.search(answer.text):
                return await self._stub_exit(endpoint) or words[0]
            if not revision.succeeded or (number == 0 and not await self._is_alone(endpoint, probe, config)):
                return None
            await asyncio.sleep(_PAUSE_S)
        return f"a probe that succeeded on this revision fails: {_error(answer)}"

    async def _send(self, endpoint: Endpoint, probe: Probe, timeout_s: float) -> Answer:
        answer = await self._client.post(endpoint.address, probe.path, probe.headers, probe.body, timeout_s=timeout_s)
        # A stream has status 200, whatever its first event is.
        return Answer(500, answer.text) if answer.text.startswith('data: {"error"') else answer


def _is_failure(answer: Answer) -> bool:
    # Triton returns 4xx for a request that does not fit the model, and 503 if a queue is full.
    return answer.status == 500


def _error(answer: Answer) -> str:
    try:
        text = str(json.loads(answer.text.removeprefix("data: "))["error"])
    except (ValueError, KeyError, TypeError):
        text = answer.text
    return " ".join(text.split())[:300]
