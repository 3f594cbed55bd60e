"""Notices and EndpointSlices about the same pods: which of them counts, and how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.pod_notice import Notice, PodChange
from halcyon.balancer.discovery.pod_notices import MAX_HELD_S, NoticedEndpoints
from halcyon.triton.client import Endpoint

READY = Endpoint("a", "p", "10.0.0.1", serving=True, terminating=False)
OTHER = Endpoint("a", "q", "10.0.0.2", serving=True, terminating=False)
UNREADY = replace(READY, serving=False)
LEAVES = replace(READY, terminating=True)


def noticed_endpoints(*news: PodChange) -> NoticedEndpoints:
    noticed = NoticedEndpoints()
    for change in news:
        noticed.add(Notice("p", "a", "10.0.0.1", change), 100.0)
    return noticed


@pytest.mark.parametrize(
    ("news", "listed", "known"),
    [
        (["ready"], [OTHER], [READY, OTHER]),
        (["ready"], [UNREADY, OTHER], [READY, OTHER]),
        (["unready"], [READY, OTHER], [UNREADY, OTHER]),
        (["unready"], [OTHER], [OTHER]),
        (["leaving"], [READY, OTHER], [LEAVES, OTHER]),
        (["leaving"], [UNREADY], [replace(UNREADY, terminating=True)]),
        (["leaving"], [OTHER], [OTHER]),
        (["ready", "unready"], [UNREADY], [UNREADY]),
        (["unready", "ready"], [UNREADY], [READY]),
        (["ready", "leaving"], [OTHER], [OTHER]),
        # It comes by another replica's stream, late: nothing brings back a pod that leaves.
        (["leaving", "ready"], [READY], [LEAVES]),
        (["ready"], [LEAVES], [LEAVES]),
    ],
)
def test_a_notice_counts_before_the_slices_have_it(
    news: list[PodChange], listed: list[Endpoint], known: list[Endpoint]
) -> None:
    assert noticed_endpoints(*news).amend(tuple(listed), 100.1) == tuple(known)


@pytest.mark.parametrize(("news", "listed"), [("ready", UNREADY), ("unready", READY)])
def test_slices_that_never_agree_are_right_in_the_end(news: PodChange, listed: Endpoint) -> None:
    noticed = noticed_endpoints(news)
    assert noticed.amend((listed,), 100.0 + MAX_HELD_S - 0.1) != (listed,)
    assert noticed.amend((listed,), 100.0 + MAX_HELD_S) == (listed,)
    assert noticed.amend((listed,), 100.0) == (listed,)


def test_a_notice_that_slices_never_list_is_no_endpoint_in_the_end() -> None:
    noticed = noticed_endpoints("ready")
    assert noticed.amend((), 100.0) == (READY,)
    assert noticed.amend((), 100.0 + MAX_HELD_S) == ()


@pytest.mark.parametrize(("news", "agreed", "later"), [("ready", READY, UNREADY), ("unready", UNREADY, READY)])
def test_slices_alone_count_once_they_list_a_noticed_pod(news: PodChange, agreed: Endpoint, later: Endpoint) -> None:
    noticed = noticed_endpoints(news)
    assert noticed.amend((agreed,), 100.1) == (agreed,)
    assert noticed.amend((later,), 100.2) == (later,)


def test_a_leaving_pod_is_out_while_slices_still_have_it_as_staying() -> None:
    noticed = noticed_endpoints("leaving")
    assert noticed.amend((READY,), 100.0 + 100 * MAX_HELD_S) == (LEAVES,)


def test_unknown_slices_leave_the_endpoints_unknown() -> None:
    assert noticed_endpoints("ready").amend(None, 100.0) is None


ENDPOINTS = st.builds(
    Endpoint,
    slot=st.sampled_from("ab"),
    pod=st.sampled_from("pqrs"),
    address=st.just("10.0.0.1"),
    serving=st.booleans(),
    terminating=st.booleans(),
)
LISTED = st.lists(ENDPOINTS, max_size=4, unique_by=lambda e: e.pod).map(
    lambda endpoints: tuple(sorted(endpoints, key=lambda e: (e.slot, e.pod)))
)
NOTICES = st.lists(
    st.builds(
        Notice,
        pod=st.sampled_from("pqrs"),
        slot=st.sampled_from("ab"),
        address=st.just("10.0.0.1"),
        change=st.sampled_from(["ready", "unready", "leaving"]),
    ),
    max_size=6,
)


@given(NOTICES, LISTED)
def test_no_notice_outlasts_its_time_except_for_leaving_pods(notices: list[Notice], listed: Any) -> None:
    noticed = NoticedEndpoints()
    for notice in notices:
        noticed.add(notice, 100.0)
    leave = {notice.pod for notice in notices if notice.change == "leaving"}
    known = noticed.amend(listed, 100.0 + MAX_HELD_S)
    assert known == tuple(replace(e, terminating=e.terminating or e.pod in leave) for e in listed)


@given(NOTICES, LISTED)
def test_each_pod_is_known_once_and_in_order(notices: list[Notice], listed: Any) -> None:
    noticed = NoticedEndpoints()
    for notice in notices:
        noticed.add(notice, 100.0)
    known = noticed.amend(listed, 100.0)
    assert known is not None
    assert len({e.pod for e in known}) == len(known)
    assert list(known) == sorted(known, key=lambda e: (e.slot, e.pod))
