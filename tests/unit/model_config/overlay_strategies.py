"""Overlays and configurations for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from halcyon.api.documents.model_overlay import (
    DATA_TYPES,
    DynamicBatching,
    Overlay,
    OverlayInput,
    OverlayQueuePolicy,
    OverlayWarmup,
    VersionPolicy,
)

SIZES = st.lists(st.integers(1, 4096), max_size=4).map(tuple)
POLICIES = st.one_of(
    st.builds(VersionPolicy, latest=st.integers(1, 100)),
    st.builds(VersionPolicy, specific=st.lists(st.integers(0, 2**31), min_size=1, max_size=4).map(tuple)),
    st.just(VersionPolicy(all=True)),
)
INPUTS = st.builds(
    OverlayInput,
    name=st.text(max_size=8),
    data_type=st.sampled_from(sorted(DATA_TYPES)),
    dims=st.lists(st.integers(-1, 65536), max_size=3).map(tuple),
)
OVERLAYS = st.builds(
    Overlay,
    model_name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", fullmatch=True),
    max_batch_size=st.none() | st.integers(1, 2**31 - 1),
    dynamic_batching=st.none()
    | st.builds(
        DynamicBatching,
        max_queue_delay_us=st.none() | st.integers(0, 10**8),
        preferred_batch_sizes=SIZES,
        preserve_ordering=st.none() | st.booleans(),
        priority_levels=st.none() | st.integers(1, 16),
        default_priority_level=st.none() | st.integers(1, 16),
        queue_policy=st.none()
        | st.builds(
            OverlayQueuePolicy,
            delay=st.none() | st.booleans(),
            timeout_us=st.none() | st.integers(0, 10**8),
            allow_timeout_override=st.none() | st.booleans(),
            max_queue_size=st.none() | st.integers(1, 10**5),
        ),
    ),
    instances=st.none() | st.integers(1, 64),
    version_policy=st.none() | POLICIES,
    backend=st.none() | st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True),
    parameters=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4),
    warmup=st.none()
    | st.builds(
        OverlayWarmup,
        batch_sizes=SIZES,
        iterations=st.integers(1, 100),
        data=st.sampled_from(["zero", "random"]),
        inputs=st.lists(INPUTS, max_size=3).map(tuple),
    ),
    response_cache=st.none() | st.booleans(),
    millicores=st.none() | st.integers(1, 256_000),
)
