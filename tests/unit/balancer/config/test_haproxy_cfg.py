from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.balancer.config import haproxy_cfg
from halcyon.balancer.config.haproxy_cfg import digest, render
from halcyon.balancer.config.model import Listen, Ports, ServerKey, TlsFiles
from halcyon.balancer.config.writer import ConfigError
from tests.ports import free_ports
from tests.unit.balancer import real_haproxy

if TYPE_CHECKING:
    from collections.abc import Callable

PLAN = BalancerPlan(
    namespace="default",
    name="digits",
    model="digits",
    slots=(Slot("a", "digits-server-a", 100, 4),),
    max_connections=48,
    queue_limit=200,
    queue_timeout_ms=60000,
    response_timeout_ms=60000,
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
        replace(
            PLAN,
            queue_limit=100000,
            queue_timeout_ms=3600000,
            response_timeout_ms=3600000,
            drain_ms=3600000,
            max_connections=100000,
        ),
        replace(PLAN, queue_timeout_ms=10, response_timeout_ms=10, drain_ms=1000, max_connections=1, queue_limit=1),
        replace(PLAN, slots=(Slot("a", "x", 1, 1024),)),
        replace(PLAN, source_share=50),
        replace(PLAN, max_request_bytes=2**30),
        replace(PLAN, max_request_bytes=1024, sequences=True),
        replace(PLAN, access_log="All"),
        replace(PLAN, access_log="Errors"),
        replace(PLAN, sticky_header="x-sequence-id", sequences=True),
        replace(TWO, sticky_header="x-sequence-id", slots=(Slot("a", "x", 95, 3), Slot("b", "y", 5, 2))),
        replace(PLAN, lower_class="Fill", objective_ms=500),
        replace(TWO, lower_class="Gentle", sequences=True, access_log="All", max_request_bytes=2**30),
    ],
    ids=[
        *("one slot", "two slots", "all to b", "all to a", "odd name", "largest", "smallest", "many servers", "shared"),
        *("bounded", "small and with a state", "logged", "errors logged", "sticky", "sticky and two slots"),
        *("lower class", "gentle lower class"),
    ],
)
@pytest.mark.parametrize("dual_stack", [False, True])
def test_haproxy_3_accepts_the_configuration_without_a_warning(plan: BalancerPlan, *, dual_stack: bool) -> None:
    placed = {ServerKey("a", 1): "10.0.0.7", ServerKey("a", 2): "fd00::1:2"}
    listen = Listen(Ports(*free_ports(3)), dual_stack, "/tmp/h.sock")
    assert real_haproxy.check(render(plan, listen=listen, placed=placed)) == ""


@given(text=st.text(min_size=1, max_size=80))
def test_text_that_is_not_a_name_never_reaches_the_file(text: str) -> None:
    slot = replace(PLAN, slots=(Slot(text, "x", 1, 1),))
    for plan in (replace(PLAN, model=text), slot, replace(TWO, sticky_header=text)):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", text):
            with pytest.raises(ConfigError, match="must match"):
                render(plan, listen=Listen())
            continue
        config = render(plan, listen=Listen())
        # Names cannot change the shape of the file.
        plain = replace(plan, model="m", sticky_header="h" if plan.sticky_header else "")
        plain = plain if plan is not slot else replace(plain, slots=(Slot("a", "x", 1, 1),))
        assert len(config.splitlines()) == len(render(plain, listen=Listen()).splitlines())


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
        render(PLAN, listen=Listen(), placed={ServerKey("a", 1): address})


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


@pytest.mark.parametrize("make", [render, digest], ids=["configuration", "digest"])
def test_slots_without_weight_or_with_one_name_are_refused(make: Callable[..., str]) -> None:
    for slots in ((Slot("a", "x", 0, 1),), ()):
        with pytest.raises(ConfigError, match="weight"):
            make(replace(PLAN, slots=slots), listen=Listen())
    with pytest.raises(ConfigError, match="the same name"):
        make(replace(PLAN, slots=(Slot("a", "x", 1, 1), Slot("a", "y", 1, 1))), listen=Listen())


def test_the_digest_is_that_of_the_plan_and_not_of_the_servers() -> None:
    bare = render(PLAN, listen=Listen())
    placed = render(PLAN, listen=Listen(), placed={ServerKey("a", 1): "10.0.0.7"})
    known = digest(PLAN, listen=Listen())
    assert bare.splitlines()[:2] == placed.splitlines()[:2] == ["global", f"  description {known}"]
    assert digest(replace(PLAN, queue_limit=201), listen=Listen()) != known


def test_a_placed_server_is_enabled_and_the_others_are_disabled() -> None:
    text = render(PLAN, listen=Listen(), placed={ServerKey("a", 2): "10.0.0.7"})
    servers = [line.strip() for line in text.splitlines() if line.strip().startswith("server s")]
    assert servers == [
        "server s1 127.0.0.1:1 tcp-ut 30s disabled",
        "server s2 10.0.0.7:8000 tcp-ut 30s",
        "server s3 127.0.0.1:1 tcp-ut 30s disabled",
        "server s4 127.0.0.1:1 tcp-ut 30s disabled",
        "server s1 127.0.0.1:1 tcp-ut 30s track http_a/s1 disabled",
        "server s2 10.0.0.7:8001 tcp-ut 30s track http_a/s2",
        "server s3 127.0.0.1:1 tcp-ut 30s track http_a/s3 disabled",
        "server s4 127.0.0.1:1 tcp-ut 30s track http_a/s4 disabled",
    ]


def test_the_weights_of_two_slots_are_shares_of_the_requests() -> None:
    text = render(TWO, listen=Listen())
    for protocol in ("http", "grpc"):
        up = {slot: f"{{ nbsrv({protocol}_{slot}) gt 0 }}" for slot in "ab"}
        assert (
            f"  use_backend {protocol}_a if {{ rand(100) lt 90 }} {up['a']}\n"
            f"  use_backend {protocol}_a if {up['a']} !{up['b']}\n"
            f"  default_backend {protocol}_b\n"
        ) in text


def test_files_that_haproxy_loads_count_in_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    known = digest(PLAN, listen=Listen())
    monkeypatch.setattr(haproxy_cfg, "LUA", {**haproxy_cfg.LUA, "hold.lua": "-- newer"})
    assert digest(PLAN, listen=Listen()) != known


def test_a_slot_without_weight_holds_and_receives_no_request() -> None:
    text = render(replace(TWO, slots=(Slot("a", "x", 0, 3), Slot("b", "y", 100, 2))), listen=Listen())
    assert "  http-request lua.hold http_b\n" in text
    assert "  lua-load /run/halcyon/hold.lua 200 1\n" in text
    assert not re.search(r"(use|default)_backend (http|grpc)_a\b", text)


def test_a_plan_without_a_source_limit_is_readable_by_older_agents() -> None:
    assert "source_share" not in PLAN.to_json()
    shared = replace(PLAN, source_share=50)
    assert BalancerPlan.from_json(shared.to_json()) == shared
    assert BalancerPlan.from_json(PLAN.to_json()) == PLAN
    assert "its share of the limit" not in render(PLAN, listen=Listen())


@pytest.mark.parametrize(("share", "bound"), [(50, 100), (1, 2), (0, 1)])
def test_a_sources_limit_is_its_queue_share_and_at_least_one(share: int, bound: int) -> None:
    text = render(replace(PLAN, source_share=share), listen=Listen())
    assert text.count(f"{{ sc_conn_cur(5) gt {bound} }}") == 2


def test_a_disabled_feature_costs_no_rule_and_no_word_in_the_plan() -> None:
    assert not re.search(r"max_request_bytes|access_log", PLAN.to_json())
    assert not re.search(
        r"body_size|41[13]|be2dec|(?<!back)log|x-request-id|halcyon-way", render(PLAN, listen=Listen())
    )


def test_a_log_that_the_agent_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigError, match="access_log is 'x'; this agent supports None, All, Errors"):
        render(replace(PLAN, access_log="x"), listen=Listen())


@pytest.mark.parametrize("tls", [None, TlsFiles("certificate-0.pem")], ids=["plain", "TLS"])
def test_new_http_connections_are_accepted_at_many_sockets(tls: TlsFiles | None) -> None:
    """HAProxy accepts four connections of a socket in each round of all ready connections. Calls of gRPC come in hundreds."""
    lines = render(PLAN, listen=Listen(tls=tls)).splitlines()
    ports = [line.split()[1] for line in lines if line.startswith("  bind :")]
    assert [ports.count(port) for port in (":8000", ":8001", ":9101")] == [16, 1, 1]


@given(text=st.text(max_size=80))
def test_a_tls_file_with_an_odd_name_never_reaches_the_configuration(text: str) -> None:
    for tls in (TlsFiles(text, ""), TlsFiles("certificate-0.pem", text)):
        if text and not re.fullmatch(r"[a-z][a-z0-9.-]{0,63}", text):
            with pytest.raises(ConfigError, match="must match"):
                render(PLAN, listen=Listen(tls=tls))


def test_a_tls_port_never_takes_plain_text_and_is_closed_without_certificate() -> None:
    served = render(PLAN, listen=Listen(tls=TlsFiles("certificate-0.pem", "clients-0.pem")))
    binds = [line for line in served.splitlines() if line.startswith("  bind :800")]
    assert [line.split(" ssl crt ")[0] for line in binds] == ["  bind :8000"] * 16 + ["  bind :8001"]
    assert all("ca-file /run/halcyon/clients-0.pem verify required" in line for line in binds)
    assert "bind :800" not in render(PLAN, listen=Listen(tls=TlsFiles()))
    assert "ssl" not in render(PLAN, listen=Listen())


def test_without_a_lower_class_no_line_mentions_it() -> None:
    text = render(replace(TWO, objective_ms=500), listen=Listen())
    assert not re.search(r"lower|halcyon-batch|proc\.room|priority-class|int\([23]\) table counters", text)


def test_without_an_objective_no_rule_looks_for_late_requests() -> None:
    assert not re.search(r"late\.lua|lua\.late|is_late", render(PLAN, listen=Listen()))
    limited = render(replace(PLAN, objective_ms=500), listen=Listen())
    assert "lua-load /run/halcyon/late.lua 3000 500 " in limited
    # A late request waits no longer than another one may.
    short = replace(PLAN, objective_ms=500, queue_timeout_ms=2000)
    assert "lua-load /run/halcyon/late.lua 2000 500 " in render(short, listen=Listen())


def test_a_lower_class_changes_only_its_own_lines_and_the_users_maximum() -> None:
    without, text = (
        render(replace(PLAN, lower_class=lower_class), listen=Listen()).splitlines() for lower_class in ("None", "Fill")
    )
    added = [line for line in text if line not in without]
    own = [
        line for line in added if re.search(r"lower|proc\.(room|user_rows|batch_us|row_us|next_rows|next_less)", line)
    ]
    # The users' maximum of requests in progress is smaller by that of the lower class, so the sum stays the same.
    others = [re.sub("gt [0-9]+", "gt N", line) for line in added if line not in own and "description" not in line]
    assert others
    assert set(others) <= {re.sub("gt [0-9]+", "gt N", line) for line in without}
    users = next(line for line in text if "track-sc0 int(1) table counters" in line)
    lower = next(line for line in text if "track-sc0 int(2) table counters if lower" in line)
    # HAProxy tracks the first rule that matches.
    assert text.index(lower) < text.index(users)


def test_a_moved_read_loses_the_internal_header_before_the_rules_of_inference() -> None:
    for protocol in ("http", "grpc"):
        backend = render(PLAN, listen=Listen()).partition(f"\nbackend {protocol}_a\n")[2].partition("\nbackend ")[0]
        rules = [line.strip() for line in backend.splitlines() if "http-response" in line]
        ends = next(number for number, rule in enumerate(rules) if rule.startswith("http-response allow"))
        assert "http-response del-header halcyon-own-response if moved" in rules[:ends]
