"""Requests at a server whose node is lost without a word, on the real HAProxy 3.0."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from halcyon.balancer.config.haproxy_cfg import LOST_SERVER_S
from tests.integration.clients.lost_server import SLOW_S


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    if os.geteuid() != 0:
        pytest.skip("only root can make a network namespace with a packet filter")
    command = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$0" -m tests.integration.clients.lost_server']
    ended = subprocess.run([*command, sys.executable], check=True, capture_output=True, text=True, timeout=150)
    outcomes: dict[str, Any] = json.loads(ended.stdout)
    return outcomes


def test_requests_at_a_lost_server_are_retried_after_seconds(outcomes: dict[str, Any]) -> None:
    small, large, call = outcomes["executing"]
    assert (small["status"], small["pod"]) == (200, outcomes["alive"])
    assert call["status"] == "OK"
    assert large["status"] in {0, 502}, "it is larger than what HAProxy keeps for a retry"
    for outcome in (small, large, call):
        assert LOST_SERVER_S <= outcome["s"] < LOST_SERVER_S + 10


def test_a_slow_server_is_not_taken_for_a_lost_one(outcomes: dict[str, Any]) -> None:
    [slow] = outcomes["slow"]
    assert (slow["status"], slow["pod"]) == (200, outcomes["alive"])
    assert slow["s"] >= SLOW_S > LOST_SERVER_S


def test_requests_after_the_loss_succeed_at_other_servers(outcomes: dict[str, Any]) -> None:
    assert [outcome["status"] for outcome in outcomes["later"]] == [200, 200, "OK"]
