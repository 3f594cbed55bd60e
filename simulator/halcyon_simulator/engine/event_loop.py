"""Event loop: arrivals, the balancer's queue, Triton's batcher and the readiness of pods.

It consists of plain arrays and compiled functions. Pods occupy slots in these arrays, which `run` assigns and frees.
`run` also decides which pods are created or removed, and when.

All compiled functions and their constants are in this one module, because numba's cache checks only the file of the
function that is called: after a change in another file, it would run the old code of a function from there.

Order of the events at the same time:

    1. Pods become ready.
    2. Batches end and their requests get responses.
    3. The balancer sends queued requests to free places.
    4. Idle instances take a batch.
    5. A request arrives.
    6. A sample is taken.

| phase    | receives requests | next event of the pod (`due`)                         | phase after the event         |
| -------- | ----------------- | ----------------------------------------------------- | ----------------------------- |
| STARTING | no                | it becomes ready                                      | READY                         |
| READY    | yes               | the end of a batch, or the end of the batcher's delay | READY                         |
| DRAINING | no                | the same as for READY                                 | RELEASED if it holds none     |
| RELEASED | no                | none, until `run` frees the slot                      | -                             |
"""

# ruff: noqa: PLR0917 - each array is an argument, because passing a tuple of them makes the compiled loop ten times as slow

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.jit import jit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Latencies = NDArray[np.float32]
Marks = NDArray[np.uint64]

STARTING, READY, DRAINING, RELEASED = 0, 1, 2, 3

# Rows of `State.pods`: phase, requests held, held requests that wait for an instance, first place of the ring buffer.
PHASE, HELD, PENDING, FRONT = 0, 1, 2, 3

# Indexes into `State.tally`.
NEXT = 0
"""Index of the next request to arrive."""
HEAD = 1
"""Start of the balancer's queue. The requests in [HEAD, NEXT) that weren't rejected are queued."""
WAITING = 2
"""Number of requests queued in the balancer."""
IN_PODS = 3
IN_QUEUES = 4
"""Number of requests in all pods that wait for an instance."""
REFUSED = 5
ANSWERED = 6
COMPUTING = 7
"""Number of instances that are computing."""
SECOND = 8
"""Next whole second of simulated time at which a sample will be taken."""
LIVE = 9
"""Number of entries in use in `State.live`. READY_PODS is the same for `State.ready`."""
READY_PODS = 10
ROTATE = 11
"""Place in `State.ready` after the pod that received the last request. Equally loaded pods take turns from there on."""
CHANGES = 12
"""Number of times that any pod has changed its phase to READY, DRAINING or RELEASED."""
MIN_HELD = 13
"""Minimum number of requests that any ready pod holds, with which the search for the least loaded pod starts."""
_TALLIES = 14

# Indexes into `State.clock`; BUSY_S includes the time up to BUSY_AT.
BUSY_S, BUSY_AT, QUEUE_S, WAITING_SINCE = 0, 1, 2, 3
_CLOCKS = 4

# Indexes into `State.law`. HORIZON is the time after which responses no longer count; PEAK is a replica's maximum
# requests per second.
DELAY, SLO, DRIFT_BEGIN, DRIFT_END, DRIFT_FACTOR, HORIZON, PEAK = 0, 1, 2, 3, 4, 5, 6
MAX_BATCH, INSTANCES, SLOTS, QUEUE_LIMIT, REFUSE_LATE, PREFIX, SHARED, REPORTED = 7, 8, 9, 10, 11, 12, 13, 14
"""Indexes of values in `State.law`. REPORTED is a batch's time in the statistics: NaN for the true time, 0 for no
batches."""
LOCK, LOCK_REPORTED = 15, 16
_LAWS = 17
"""Number of fixed values in `State.law`. The durations of batches with 0, 1, ... requests follow them."""

_NONE, _UNIT, _ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)
_DE_BRUIJN, _TOP = np.uint64(0x03F79D71B4CB0A89), np.uint64(58)
"""De Bruijn constant for finding the index of a set bit. Any six consecutive bits of the constant are unique, so the
top six bits of its product with a single bit identify this bit."""
_BIT = np.zeros(64, np.int64)
_BIT[[((1 << bit) * int(_DE_BRUIJN) & int(_ALL)) >> int(_TOP) for bit in range(64)]] = np.arange(64)

SIGNALS = 9
_MEASURED_S = 2
"""Minimum time in seconds over which the balancer measures the rate of responses."""


class State(NamedTuple):
    """Arrays with the state of one run. Scalars are elements of `law`, `clock` and `tally`."""

    arrivals: Floats
    latency: Latencies
    """Time in system of each request, in seconds; infinite if it had no response until the horizon, NaN if it was
    rejected."""
    law: Floats
    clock: Floats
    tally: Ints
    samples: Floats
    """Samples, by (signal, prefix + second). The signals are in the order of `policy_view.SampleColumn`."""
    past: Floats
    """Values of `batches` at the last whole seconds, by (second modulo the array's length, 0, batch size)."""
    batches: Floats
    """Cumulative counts for finished batches, by (0 for executions or 1 for seconds of computing, batch size)."""
    pods: Ints
    """State of the pods, by (kind of value: PHASE, HELD, PENDING or FRONT; slot)."""
    due: Floats
    """Time of the next event of each pod, by slot."""
    released: Floats
    """Time at which each pod ceased to exist, by slot."""
    ring: Ints
    """Requests that wait for an instance, as a ring buffer by (slot, place)."""
    ring_at: Floats
    """Time at which each request in `ring` began to wait, by (slot, place)."""
    work: Floats
    """Batches in execution, by (slot, instance, field). The fields are 0: end, 1: start, 2: size of the batch, 3:
    request if executions are shared, 4: reported time. The end is infinite for an idle instance."""
    live: Ints
    """Slots of all pods that aren't RELEASED."""
    ready: Ints
    """Slots of the READY pods."""
    loads: Ints
    """Number of READY pods by the number of requests that they hold, so that an arrival needn't check each pod."""
    place: Ints
    """Place of each READY pod in `ready`, by slot."""
    marks: Marks
    """Bits by (requests held, word), with one bit per place in `ready` and 64 bits per word. A bit is set if the pod at
    this place holds this many requests."""


class Engine:
    """Handle for the event loop, which advances a run, and adds and removes pods."""

    def __init__(self, state: State) -> None:
        self.state = state

    @property
    def capacity(self) -> int:
        """Number of slots for pods."""
        return len(self.state.due)

    def advance(self, until: float) -> None:
        """Process all events up to and including the time `until`."""
        _advance(until, self.state)

    def start(self, slot: int, *, ready_s: float) -> None:
        """Start a pod in a free slot."""
        state = self.state
        state.pods[:, slot] = (STARTING, 0, 0, 0)
        state.due[slot] = ready_s
        state.released[slot] = np.nan
        state.work[slot, :, 0] = np.inf
        state.live[state.tally[LIVE]] = slot
        state.tally[LIVE] += 1

    def drain(self, slot: int, now: float) -> None:
        """Stop sending requests to a pod.

        The pod ceases to exist once it holds no requests; a starting or idle pod does so immediately.
        """
        state = self.state
        if state.pods[PHASE, slot] == READY:
            state.tally[READY_PODS] = _without(state.ready, state.tally[READY_PODS], slot)
            state.loads[state.pods[HELD, slot]] -= 1
            state.pods[PHASE, slot] = DRAINING
            _mark(state.tally, state.pods, state.ready, state.place, state.marks)
        if state.pods[HELD, slot] == 0:
            _release(now, slot, state.tally, state.pods, state.due, state.released, state.live)
        state.tally[CHANGES] += 1

    def grow(self) -> None:
        """Double the number of slots."""
        before, old = self.capacity, self.state
        self.state = old._replace(**_slots(2 * before, old.law))
        self.state.pods[:, :before] = old.pods
        for name in ("due", "released", "ring", "ring_at", "work", "live", "ready"):
            getattr(self.state, name)[:before] = getattr(old, name)
        state = self.state
        _mark(state.tally, state.pods, state.ready, state.place, state.marks)


def engine(case: Case, *, samples: Floats, prefix: int, past: int) -> Engine:
    """Return the event loop of a run at its start, without pods.

    `samples` has `prefix` columns for the history, one for second 0, and one for each further second to sample. `past`
    is the number of seconds for which the counts by batch size are kept.
    """
    service, drift = case.service, case.drift
    most = max(service.max_batch, service.instances if service.shared else 0)
    law = np.zeros(_LAWS + most + 1)
    law[_LAWS:] = [service.seconds(size) for size in range(most + 1)]
    law[[DELAY, SLO]] = service.delay_s, case.slo_s
    law[[DRIFT_BEGIN, DRIFT_END, DRIFT_FACTOR]] = (
        (drift.begin_s, drift.end_s, drift.factor) if drift else (0.0, 1.0, 1.0)
    )
    law[HORIZON] = case.duration_s + case.slo_s
    law[PEAK] = service.peak_rps
    law[[MAX_BATCH, INSTANCES]] = service.max_batch, service.instances
    law[SLOTS] = 2 * service.max_batch * service.instances if case.slots is None else case.slots
    law[QUEUE_LIMIT] = np.inf if case.queue_limit is None else case.queue_limit
    law[REFUSE_LATE] = case.refuse_late
    law[PREFIX] = prefix
    law[SHARED] = service.shared
    law[REPORTED] = np.nan if service.reported_s is None else service.reported_s
    law[LOCK] = np.inf if service.lock is None else service.lock
    law[LOCK_REPORTED] = service.lock_reported
    arrivals = np.require(case.arrivals, np.float64, ["C", "W"])
    arrivals = arrivals[: int(np.searchsorted(arrivals, case.duration_s))]
    tally = np.zeros(_TALLIES, np.int64)
    tally[SECOND] = 1
    return Engine(
        State(
            arrivals=arrivals,
            latency=np.full(len(arrivals), np.inf, np.float32),
            law=law,
            clock=np.zeros(_CLOCKS),
            tally=tally,
            samples=samples,
            past=np.zeros((past, 2, service.max_batch + 1)),
            batches=np.zeros((2, service.max_batch + 1)),
            loads=np.zeros(int(law[SLOTS]) + 1, np.int64),
            **_slots(4 * case.high + 64, law),
        )
    )


def _slots(number: int, law: Floats) -> dict[str, NDArray[Any]]:
    places, instances = int(law[SLOTS]), int(law[INSTANCES])
    pods = np.zeros((4, number), np.int64)
    pods[PHASE] = RELEASED
    return {
        "pods": pods,
        "due": np.full(number, np.inf),
        "released": np.full(number, np.nan),
        "ring": np.zeros((number, places), np.int64),
        "ring_at": np.zeros((number, places)),
        "work": np.full((number, instances, 5), np.inf),
        "live": np.zeros(number, np.int64),
        "ready": np.zeros(number, np.int64),
        "place": np.zeros(number, np.int64),
        "marks": np.zeros((places + 1, number // 64 + 1), np.uint64),
    }


@jit
def _without(slots: Ints, count: int, slot: int) -> int:
    """Remove `slot` from the first `count` places of an array, and return the new count.

    The order of the others stays the same.
    """
    count_after = 0
    for place in range(count):
        if slots[place] != slot:
            slots[count_after] = slots[place]
            count_after += 1
    return count_after


@jit
def _release(now: float, pod: int, tally: Ints, pods: Ints, due: Floats, released: Floats, live: Ints) -> None:
    """Set the phase of a pod to RELEASED."""
    pods[PHASE, pod] = RELEASED
    due[pod] = np.inf
    released[pod] = now
    tally[LIVE] = _without(live, tally[LIVE], pod)
    tally[CHANGES] += 1


@jit
def _flip(held: int, place: int, marks: Marks) -> None:
    """Flip the bit in `marks` for a place in `ready` and a number of requests held."""
    marks[held, place >> 6] ^= _UNIT << np.uint64(place & 63)


@jit
def _mark(tally: Ints, pods: Ints, ready: Ints, places: Ints, marks: Marks) -> None:
    """Recompute `place` and `marks` after pods have moved within `ready`."""
    marks[:] = _NONE
    for place in range(tally[READY_PODS]):
        places[ready[place]] = place
        _flip(pods[HELD, ready[place]], place, marks)


@jit
def _marked(held: int, place: int, count: int, marks: Marks) -> int:
    """Return the first place, from `place` on and cyclically, whose pod holds `held` requests.

    Only the first `count` places are searched. One of them must match.
    """
    word = place >> 6
    bits = marks[held, word] & (_ALL << np.uint64(place & 63))
    while bits == _NONE:
        word += 1
        if word << 6 >= count:
            word = 0
        bits = marks[held, word]
    lowest = bits & (~bits + _UNIT)
    return int((word << 6) + _BIT[(lowest * _DE_BRUIJN) >> _TOP])


@jit
def _least_loaded(slots: int, tally: Ints, ready: Ints, loads: Ints, marks: Marks) -> int:
    """Return the ready pod with the fewest requests, or -1 if all pods hold `slots` requests.

    Pods with the same number of requests are chosen in rotation.
    """
    least = tally[MIN_HELD]
    while least < slots and loads[least] == 0:
        least += 1
    tally[MIN_HELD] = least
    if least >= slots:
        return -1
    count = tally[READY_PODS]
    place = _marked(least, tally[ROTATE] if tally[ROTATE] < count else 0, count, marks)
    tally[ROTATE] = place + 1
    return int(ready[place])


@jit
def _add_held(pod: int, more: int, pods: Ints, loads: Ints, places: Ints, marks: Marks) -> None:
    """Add `more` to the number of requests that a ready pod holds; `more` may be negative."""
    before = pods[HELD, pod]
    pods[HELD, pod] = before + more
    loads[before] -= 1
    loads[before + more] += 1
    _flip(before, places[pod], marks)
    _flip(before + more, places[pod], marks)


@jit
def _send(
    now: float,
    request: int,
    pod: int,
    tally: Ints,
    pods: Ints,
    ring: Ints,
    ring_at: Floats,
    loads: Ints,
    places: Ints,
    marks: Marks,
) -> None:
    """Put a request into the queue of a ready pod."""
    place = pods[FRONT, pod] + pods[PENDING, pod]
    if place >= ring.shape[1]:
        place -= ring.shape[1]
    ring[pod, place] = request
    ring_at[pod, place] = now
    pods[PENDING, pod] += 1
    _add_held(pod, 1, pods, loads, places, marks)
    tally[IN_QUEUES] += 1
    tally[IN_PODS] += 1


@jit
def _count_busy(now: float, change: int, clock: Floats, tally: Ints) -> None:
    """Update the busy time before `change` instances start (or, if negative, stop) computing."""
    clock[BUSY_S] += tally[COMPUTING] * (now - clock[BUSY_AT])
    clock[BUSY_AT] = now
    tally[COMPUTING] += change


@jit
def _locked(tally: Ints, law: Floats) -> float:
    """Return the factor by which a batch that starts now takes longer because of a lock that all pods share."""
    return float(max((tally[COMPUTING] + 1) / law[LOCK], 1.0))


@jit
def _batch_s(now: float, size: int, law: Floats) -> float:
    """Return the duration of a batch that starts now, as if there were no shared lock."""
    factor = 1.0
    if law[DRIFT_FACTOR] != 1.0:
        passed = (now - law[DRIFT_BEGIN]) / (law[DRIFT_END] - law[DRIFT_BEGIN])
        factor += (law[DRIFT_FACTOR] - 1.0) * min(max(passed, 0.0), 1.0)
    return float(law[_LAWS + size] * factor)


@jit
def _stretch(now: float, pod: int, before: int, after: int, law: Floats, work: Floats) -> None:
    """Adjust the ends of a pod's executions when `after` instead of `before` requests share the pod."""
    if law[SHARED] == 0 or before == 0:
        return
    factor = _batch_s(now, after, law) / _batch_s(now, before, law)
    for instance in range(work.shape[1]):
        if work[pod, instance, 0] < np.inf:
            work[pod, instance, 0] = now + (work[pod, instance, 0] - now) * factor


@jit
def _executing(pod: int, work: Floats) -> int:
    """Return the number of a pod's instances that are executing a batch."""
    count = 0
    for instance in range(work.shape[1]):
        if work[pod, instance, 0] < np.inf:
            count += 1
    return count


@jit
def _compute(
    now: float,
    pod: int,
    law: Floats,
    clock: Floats,
    tally: Ints,
    arrivals: Floats,
    latency: Latencies,
    pods: Ints,
    due: Floats,
    ring: Ints,
    ring_at: Floats,
    work: Floats,
) -> None:
    """Start the batches that a pod's idle instances may take now, and set the pod's next event."""
    next_s = np.inf
    sharing = 1
    if law[SHARED] != 0:
        before = _executing(pod, work)
        sharing = before + min(pods[PENDING, pod], work.shape[1] - before)
        _stretch(now, pod, before, sharing, law, work)
    for instance in range(work.shape[1]):
        end = work[pod, instance, 0]
        pending, place = pods[PENDING, pod], pods[FRONT, pod]
        if end == np.inf and pending > 0:
            # Wait until the oldest request has waited for the batcher's delay. `due` is the same sum, so the comparison
            # is exact.
            end = ring_at[pod, place] + law[DELAY]
            if pending >= law[MAX_BATCH] or law[DELAY] == 0 or now >= end:
                size = min(pending, int(law[MAX_BATCH]))
                longer = _locked(tally, law)
                alone = _batch_s(now, size if law[SHARED] == 0 else sharing, law)
                end = now + longer * alone
                for _ in range(size):
                    request = ring[pod, place]
                    clock[QUEUE_S] += now - ring_at[pod, place]
                    # The latency is known now, unless executions are shared. The response is counted when the batch ends.
                    work[pod, instance, 3] = request
                    if end <= law[HORIZON] and law[SHARED] == 0:
                        latency[request] = end - arrivals[request]
                    place += 1
                    if place == ring.shape[1]:
                        place = 0
                pods[FRONT, pod] = place
                pods[PENDING, pod] = pending - size
                tally[IN_QUEUES] -= size
                work[pod, instance, 0] = end
                work[pod, instance, 1] = now
                work[pod, instance, 2] = size
                work[pod, instance, 4] = end - now if law[LOCK_REPORTED] != 0 else alone
                _count_busy(now, 1, clock, tally)
        next_s = min(next_s, end)
    due[pod] = next_s


@jit
def _answer(
    now: float,
    pod: int,
    law: Floats,
    clock: Floats,
    tally: Ints,
    arrivals: Floats,
    latency: Latencies,
    batches: Floats,
    pods: Ints,
    work: Floats,
    loads: Ints,
    places: Ints,
    marks: Marks,
) -> None:
    """Finish the batches of a pod that end now, so that their requests get responses."""
    before = _executing(pod, work) if law[SHARED] != 0 else 0
    for instance in range(work.shape[1]):
        end = work[pod, instance, 0]
        if end <= now:
            size = int(work[pod, instance, 2])
            if law[REPORTED] != 0:
                batches[0, size] += 1
                batch_s = work[pod, instance, 4] if law[LOCK] < np.inf else end - work[pod, instance, 1]
                batches[1, size] += batch_s if np.isnan(law[REPORTED]) else law[REPORTED]
            if law[SHARED] != 0 and end <= law[HORIZON]:
                request = int(work[pod, instance, 3])
                latency[request] = end - arrivals[request]
            work[pod, instance, 0] = np.inf
            if pods[PHASE, pod] == READY:
                _add_held(pod, -size, pods, loads, places, marks)
                tally[MIN_HELD] = min(tally[MIN_HELD], pods[HELD, pod])
            else:
                pods[HELD, pod] -= size
            tally[IN_PODS] -= size
            tally[ANSWERED] += size
            _count_busy(now, -1, clock, tally)
    if before > 0:
        _stretch(now, pod, before, _executing(pod, work), law, work)


@jit
def _open(
    now: float,
    tally: Ints,
    pods: Ints,
    due: Floats,
    live: Ints,
    ready: Ints,
    loads: Ints,
    places: Ints,
    marks: Marks,
) -> None:
    """Set the phase of the pods that become ready now to READY."""
    for place in range(tally[LIVE]):
        pod = live[place]
        if pods[PHASE, pod] == STARTING and due[pod] <= now:
            pods[PHASE, pod] = READY
            due[pod] = np.inf
            ready[tally[READY_PODS]] = pod
            places[pod] = tally[READY_PODS]
            _flip(0, places[pod], marks)
            tally[READY_PODS] += 1
            loads[0] += 1
            tally[MIN_HELD] = 0
            tally[CHANGES] += 1


@jit
def _refused(now: float, law: Floats, clock: Floats, tally: Ints, samples: Floats) -> bool:
    """Return True if the balancer rejects a request that would have to wait.

    It rejects the request if its queue is full or the SLO can't be met. The expected time in system is a sum of three
    parts:

        - The length of the queue divided by the rate of responses.
        - The time until a place is free, which is one full batch because places become free in batches.
        - The duration of the full batches that a full pod computes, up to and including the one with this request.

    The rate is measured only while there is a queue, because otherwise it would show the load and not the capacity.
    Without a measurement, it is the maximum rate of the ready pods. Without ready pods, no estimate is possible, and
    the request is held.
    """
    if tally[WAITING] >= law[QUEUE_LIMIT]:
        return True
    pods = tally[READY_PODS]
    if law[REFUSE_LATE] == 0 or pods == 0:
        return False
    full_s = law[_LAWS + int(law[MAX_BATCH])]
    rate = pods * law[PEAK]
    since = int(now) - _MEASURED_S
    if tally[WAITING] > 0 and since >= clock[WAITING_SINCE]:
        answered = tally[ANSWERED] - samples[2, since + int(law[PREFIX])]
        if answered > 0:
            rate = answered / (now - since)
    rounds = law[SLOTS] / (law[MAX_BATCH] * law[INSTANCES])
    expected_s = (tally[WAITING] + 1) / rate + (1 + rounds) * full_s
    return bool(expected_s > law[SLO])


@jit
def _sample(
    before: float,
    until: float,
    prefix: int,
    law: Floats,
    clock: Floats,
    tally: Ints,
    samples: Floats,
    past: Floats,
    batches: Floats,
) -> None:
    """Take the samples of the whole seconds before the next event, at most up to `until`."""
    while tally[SECOND] < before and tally[SECOND] <= until and tally[SECOND] + prefix < samples.shape[1]:
        second = tally[SECOND]
        column = second + prefix
        samples[0, column] = tally[NEXT]
        samples[1, column] = tally[REFUSED]
        samples[2, column] = tally[ANSWERED]
        # Requests that Triton's statistics take for executed don't wait in it.
        samples[3, column] = tally[WAITING] + (tally[IN_QUEUES] if np.isnan(law[REPORTED]) else 0)
        samples[4, column] = tally[WAITING] + tally[IN_PODS]
        samples[5, column] = clock[BUSY_S] + tally[COMPUTING] * (second - clock[BUSY_AT])
        samples[6, column] = clock[QUEUE_S]
        samples[7, column] = tally[READY_PODS]
        samples[8, column] = tally[WAITING]
        row = second % past.shape[0]
        # Copy element by element, because numba takes longer to compile an array copy than all the rest.
        for size in range(batches.shape[1]):
            past[row, 0, size] = batches[0, size]
            past[row, 1, size] = batches[1, size]
        tally[SECOND] = second + 1


@jit
def _queue_or_reject(
    now: float, request: int, law: Floats, clock: Floats, tally: Ints, latency: Latencies, samples: Floats
) -> None:
    """Queue a request in the balancer, or reject it. This is called if no pod can take the request."""
    if _refused(now, law, clock, tally, samples):
        latency[request] = np.nan
        tally[REFUSED] += 1
        return
    if tally[WAITING] == 0:
        tally[HEAD] = request
        clock[WAITING_SINCE] = now
    tally[WAITING] += 1


@jit
def _fill(
    now: float,
    slots: int,
    tally: Ints,
    latency: Latencies,
    pods: Ints,
    ring: Ints,
    ring_at: Floats,
    ready: Ints,
    loads: Ints,
    places: Ints,
    marks: Marks,
) -> None:
    """Send queued requests from the balancer to pods with free places."""
    while tally[WAITING] > 0:
        pod = _least_loaded(slots, tally, ready, loads, marks)
        if pod < 0:
            return
        # If all other pods are full, this pod receives queued requests until it is full, too.
        more = slots - pods[HELD, pod] if loads[slots] == tally[READY_PODS] - 1 else 1
        for _ in range(min(more, tally[WAITING])):
            head = tally[HEAD]
            while np.isnan(latency[head]):
                head += 1
            tally[HEAD] = head + 1
            tally[WAITING] -= 1
            _send(now, head, pod, tally, pods, ring, ring_at, loads, places, marks)


@jit
def _soonest(tally: Ints, due: Floats, live: Ints) -> int:
    """Return the slot of the pod with the earliest next event; 0 if there are no events, because its `due` is inf."""
    soonest, earliest = 0, np.inf
    for place in range(tally[LIVE]):
        pod = live[place]
        if due[pod] < earliest:
            soonest, earliest = pod, due[pod]
    return int(soonest)


@jit
def _sooner(changed: int, before: float, soonest: int, tally: Ints, due: Floats, live: Ints) -> int:
    """Return the pod with the earliest next event, after that of pod `changed` has moved from the time `before`."""
    # An event can also move to a later time: a batch that fills up before the delay is over ends after the delay would
    # have.
    if changed == soonest and due[changed] > before:
        return _soonest(tally, due, live)
    return changed if due[changed] < due[soonest] else soonest


@jit
def _advance(until: float, state: State) -> None:
    arrivals, latency, law, clock, tally, samples, past, batches = state[:8]
    pods, due, released, ring, ring_at, work, live, ready, loads, places, marks = state[8:]
    slots, prefix = int(law[SLOTS]), int(law[PREFIX])
    soonest = _soonest(tally, due, live)
    while True:
        arrival = arrivals[tally[NEXT]] if tally[NEXT] < len(arrivals) else np.inf
        now = min(due[soonest], arrival)
        if tally[SECOND] < now:
            _sample(now, until, prefix, law, clock, tally, samples, past, batches)
        if now > until:
            return
        if arrival < due[soonest]:
            request = tally[NEXT]
            tally[NEXT] = request + 1
            # While requests are queued, all pods are full.
            pod = _least_loaded(slots, tally, ready, loads, marks) if tally[WAITING] == 0 else -1
            if pod >= 0:
                before = due[pod]
                _send(now, request, pod, tally, pods, ring, ring_at, loads, places, marks)
                _compute(now, pod, law, clock, tally, arrivals, latency, pods, due, ring, ring_at, work)
                soonest = _sooner(pod, before, soonest, tally, due, live)
            else:
                _queue_or_reject(now, request, law, clock, tally, latency, samples)
            continue
        opened = tally[READY_PODS]
        if pods[PHASE, soonest] == STARTING:
            _open(now, tally, pods, due, live, ready, loads, places, marks)
        else:
            _answer(now, soonest, law, clock, tally, arrivals, latency, batches, pods, work, loads, places, marks)
        # All pods that become ready now are added before queued requests are distributed. Instances take batches after
        # that.
        _fill(now, slots, tally, latency, pods, ring, ring_at, ready, loads, places, marks)
        _compute(now, soonest, law, clock, tally, arrivals, latency, pods, due, ring, ring_at, work)
        for place in range(opened, tally[READY_PODS]):
            _compute(now, ready[place], law, clock, tally, arrivals, latency, pods, due, ring, ring_at, work)
        if pods[PHASE, soonest] == DRAINING and pods[HELD, soonest] == 0:
            _release(now, soonest, tally, pods, due, released, live)
        soonest = _soonest(tally, due, live)
