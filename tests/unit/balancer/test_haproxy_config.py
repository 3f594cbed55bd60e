from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.plan import BalancerPlan, Slot
from halcyon.balancer.haproxy_config import ConfigError, LineKey, Listen, Ports, digest, render
from tests.unit.balancer import real_haproxy

PLAN = BalancerPlan(
    namespace="default",
    name="digits",
    model="digits",
    slots=(Slot("a", "digits-server-a", 100, 4),),
    max_connections=48,
    queue_limit=200,
    request_timeout_ms=60000,
    drain_ms=30000,
)
TWO = replace(PLAN, slots=(Slot("a", "digits-server-a", 90, 3), Slot("b", "digits-server-b", 10, 2)))


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        TWO,
        replace(TWO, slots=(Slot("a", "x", 0, 3), Slot("b", "y", 256, 2))),
        replace(TWO, slots=(Slot("a", "x", 7, 3), Slot("b", "y", 0, 2))),
        replace(PLAN, model="Resnet_50.v2-x"),
        replace(PLAN, queue_limit=100000, request_timeout_ms=3600000, drain_ms=3600000, max_connections=100000),
        replace(PLAN, request_timeout_ms=10, drain_ms=1000, max_connections=1, queue_limit=1),
        replace(PLAN, slots=(Slot("a", "x", 1, 1024),)),
    ],
    ids=["one slot", "two slots", "all to b", "all to a", "odd model name", "largest", "smallest", "many servers"],
)
@pytest.mark.parametrize("dual_stack", [False, True])
def test_haproxy_3_accepts_the_configuration_without_a_warning(plan: BalancerPlan, *, dual_stack: bool) -> None:
    placed = {LineKey("a", 1): "10.0.0.7", LineKey("a", 2): "fd00::1:2"}
    listen = Listen(Ports(*real_haproxy.free_ports(3)), dual_stack, "/tmp/h.sock")
    assert real_haproxy.check(render(plan, listen=listen, placed=placed)) == ""


@given(text=st.text(min_size=1, max_size=80))
def test_text_that_is_not_a_name_never_reaches_the_file(text: str) -> None:
    for plan in (replace(PLAN, model=text), replace(PLAN, slots=(Slot(text, "x", 1, 1),))):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", text):
            with pytest.raises(ConfigError, match="must match"):
                render(plan, listen=Listen())
            continue
        made = render(plan, listen=Listen())
        # Names cannot change the shape of the file.
        assert len(made.splitlines()) == len(
            render(replace(PLAN, slots=(Slot("a", "x", 1, plan.slots[0].capacity),)), listen=Listen()).splitlines()
        )


@pytest.mark.parametrize(
    "model",
    [
        "",
        "a b",
        "a\nbackend x",
        "a\rb",
        "a\x00",
        "a\u2028b",
        "a'b",
        'a"b',
        "a\\",
        "a#",
        "%[env(PATH)]",
        "$HOME",
        "-a",
        "a" * 64,
    ],
)
def test_a_model_name_that_could_be_syntax_is_refused_with_an_example(model: str) -> None:
    with pytest.raises(ConfigError, match="for example"):
        render(replace(PLAN, model=model), listen=Listen())


@pytest.mark.parametrize("address", ["10.0.0.7 weight 1", "host", "10.0.0.7:80", "fe80::1%eth0", "10.0.0.7\nserver"])
def test_an_address_that_is_no_plain_ip_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        render(PLAN, listen=Listen(), placed={LineKey("a", 1): address})


@pytest.mark.parametrize("value", [-1, 2**31])
def test_a_number_out_of_range_is_refused(value: int) -> None:
    with pytest.raises(ConfigError, match="must be from 0"):
        render(replace(PLAN, max_connections=value), listen=Listen())


def test_a_value_that_is_no_number_is_refused_where_a_number_stands() -> None:
    bad = replace(PLAN, max_connections="48 weight 2")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must match"):
        render(bad, listen=Listen())
    with pytest.raises(ConfigError, match="a number or a name"):
        render(replace(PLAN, max_connections=1.5), listen=Listen())  # type: ignore[arg-type]


def test_slots_without_weight_or_with_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="weight"):
        render(replace(PLAN, slots=(Slot("a", "x", 0, 1),)), listen=Listen())
    with pytest.raises(ConfigError, match="twice"):
        render(replace(PLAN, slots=(Slot("a", "x", 1, 1), Slot("a", "y", 1, 1))), listen=Listen())


def test_the_digest_is_that_of_the_plan_and_not_of_the_servers() -> None:
    bare = render(PLAN, listen=Listen())
    placed = render(PLAN, listen=Listen(), placed={LineKey("a", 1): "10.0.0.7"})
    known = digest(PLAN, listen=Listen())
    assert bare.splitlines()[:2] == placed.splitlines()[:2] == ["global", f"  description {known}"]
    assert digest(replace(PLAN, queue_limit=201), listen=Listen()) != known


def test_a_placed_server_is_enabled_and_the_others_are_disabled() -> None:
    text = render(PLAN, listen=Listen(), placed={LineKey("a", 2): "10.0.0.7"})
    servers = [line.strip() for line in text.splitlines() if line.strip().startswith("server ")]
    assert servers == [
        "server s1 127.0.0.1:1 disabled",
        "server s2 10.0.0.7:8000",
        "server s3 127.0.0.1:1 disabled",
        "server s4 127.0.0.1:1 disabled",
        "server s1 127.0.0.1:1 track http_a/s1 disabled",
        "server s2 10.0.0.7:8001 track http_a/s2",
        "server s3 127.0.0.1:1 track http_a/s3 disabled",
        "server s4 127.0.0.1:1 track http_a/s4 disabled",
    ]


def test_the_weights_of_two_slots_are_shares_of_the_requests() -> None:
    text = render(TWO, listen=Listen())
    assert "use_backend http_a if { rand(100) lt 90 }\n  default_backend http_b" in text
    assert "use_backend grpc_a if { rand(100) lt 90 }\n  default_backend grpc_b" in text
