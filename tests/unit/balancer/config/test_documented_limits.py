"""Numbers and messages on the pages about balancers are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from halcyon.api.documents.balancer_plan import HAPROXY_MEMORY_MIB
from halcyon.balancer.agent import slow_clients
from halcyon.balancer.config import error_responses, memory_budget, overload_rules, retries
from halcyon.balancer.config.haproxy_cfg import LUA
from halcyon.balancer.runtime import overload_limits, retry_budget
from halcyon.render.balancer import AGENT_MEMORY_MIB
from tests.unit.balancer.config.test_haproxy_cfg import PLAN

ROOT = Path(__file__).parents[4]
PLAIN, TLS = (memory_budget.haproxy_limits(PLAN, tls=tls) for tls in (False, True))
USERS = memory_budget.MAX_REQUESTS - memory_budget.MAX_LOWER
BUSY_S, REST_S = slow_clients.SLOW_S, slow_clients.SLOW_S + slow_clients.REST_S
IN_WORDS = {4: "four", 6: "six"}


def words(page: str) -> str:
    return " ".join((ROOT / page).read_text().split())


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("concepts/balancer.md", f"twice | {memory_budget.MAX_REQUESTS:,}; {USERS:,} while a BatchInference runs"),
        ("concepts/balancer.md", f"already holds {memory_budget.MAX_LOWER} batch requests"),
        ("concepts/balancer.md", f"in one balancer process | {memory_budget.MAX_STREAMS:,} |"),
        ("concepts/balancer.md", f"| concurrent requests of one gRPC channel | {memory_budget.STREAMS_PER_CHANNEL} |"),
        ("concepts/balancer.md", f"| {PLAIN.http:,}, {PLAIN.grpc:,}, {memory_budget.MAX_METRICS_CONNECTIONS}; with"),
        ("concepts/balancer.md", f"with TLS {TLS.http:,}, {TLS.grpc:,}, {memory_budget.MAX_METRICS_CONNECTIONS} |"),
        ("concepts/balancer.md", f"below its container's limit of {HAPROXY_MEMORY_MIB} MiB"),
        ("concepts/balancer.md", f"Up to {memory_budget.MAX_MOVED} requests per protocol"),
        ("concepts/balancer.md", f"| first {retries.MAX_BYTES // 1024} KiB of a request's body"),
        ("concepts/balancer.md", f"place at a pod | {BUSY_S:g} s; {REST_S:g} s for a stream;"),
        ("concepts/balancer.md", f"A stream must have rested for {slow_clients.REST_S:g} s before that"),
        ("concepts/balancer.md", f"{retry_budget.MIN_RETRIES} retries are always allowed"),
        ("concepts/overload.md", f"for up to {IN_WORDS[overload_rules.LATE_OBJECTIVES]} times the objective"),
        ("concepts/overload.md", f"| {IN_WORDS[int(overload_limits.LATE_WORK)]} times as many as the pods can answer"),
        ("limits.md", f"at most {memory_budget.MAX_REQUESTS:,} requests, {memory_budget.MAX_STREAMS:,} streams,"),
        ("limits.md", f"{PLAIN.http:,} HTTP connections and {PLAIN.grpc:,} gRPC connections"),
        ("limits.md", f"but only after {BUSY_S:g} s, and {REST_S:g} s for a stream."),
        ("guides/multi-tenancy.md", f"with memory limits of {HAPROXY_MEMORY_MIB + AGENT_MEMORY_MIB}Mi |"),
    ],
)
def test_a_limit_on_a_page_is_that_of_the_code(page: str, text: str) -> None:
    assert text in words(f"docs/{page}")


def test_messages_of_a_balancers_own_responses_are_in_the_troubleshooting_table() -> None:
    quoted = re.findall(r"`([^`\n]+)`", (ROOT / "docs" / "troubleshooting.md").read_text())
    fragments = [[part.strip() for part in quote.split("...")] for quote in quoted if len(quote.split()) > 3]
    messages = [message for *_, message in (*error_responses._OVERLOAD_RESPONSES.values(), *error_responses._ERRORS)]
    messages.append(error_responses._BAD_REQUEST)
    messages += re.findall(r"grpc-message: ([^\\]+)", LUA["streams.lua"])
    absent = [
        message
        for message in messages
        if not any(all(part in message.replace("$model", "M") for part in parts) for parts in fragments)
    ]
    assert len(messages) > 12
    assert absent == []
