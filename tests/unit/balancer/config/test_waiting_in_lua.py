"""Lua files in which requests wait, in a process that is short of CPU. With the real HAProxy: tests/integration/balancer."""

from __future__ import annotations

from typing import Any

import lupa.lua54  # type: ignore[import-untyped]  # it has no types

from halcyon.balancer.config.haproxy_cfg import LUA

HAPROXY = """
clock_ms, wall_ms, in_servers, sent = 0, 1e12, 0, 0
variables, actions = {}, {}
core = {
    now = function() return { sec = clock_ms // 1000, usec = clock_ms % 1000 * 1000 } end,
    msleep = function() coroutine.yield() end,
    get_info = function() return { Stopping = 0 } end,
    register_action = function(name, _, run) actions[name] = run end,
}
local fetches = {
    queue = function() return 0 end,
    nbsrv = function() return 1 end,
    be_conn = function() return in_servers end,
    date = function() return wall_ms end,
}
function arrive(name)
    local own = {}
    local txn = {
        f = fetches,
        c = { table_conn_cur = function() return sent end },
        sf = { req_fhdr = function(_, header) return header == "halcyon-batch" and "job" or nil end },
        get_var = function(_, variable) return own[variable] or variables[variable] end,
        set_var = function(_, variable, value) own[variable] = value end,
    }
    local thread = coroutine.create(function() actions[name](txn) end)
    local request = { wake = function() assert(coroutine.resume(thread)) end }
    function request.result() return own["txn." .. name] end
    request.wake()
    return request
end
"""
"""The functions of HAProxy that the files use, with one thread for each request."""
LATE = {"proc.hopeless": 9, "proc.late_most": 10, "proc.late_room": 0}
OBJECTIVE_MS = 500


def started(name: str, *parameters: object, **variables: int) -> Any:
    """Return the globals of a process that has loaded one of the files with these parameters."""
    lua = lupa.lua54.LuaRuntime(register_eval=False, register_builtins=False)
    lua.execute(HAPROXY)
    lua.globals().load(LUA[name])(*map(str, parameters))
    for variable, value in variables.items():
        lua.globals().variables[variable] = value
    return lua.globals()


def test_late_request_that_may_go_goes_even_if_it_wakes_late() -> None:
    haproxy = started("late.lua", 30_000, OBJECTIVE_MS, 100, "http_a", **LATE)
    first, second = haproxy.arrive("late"), haproxy.arrive("late")
    haproxy.variables["proc.late_room"] = 1
    second.wake()
    assert haproxy.halcyon_late() == 1, "the first may go"
    haproxy.clock_ms, haproxy.in_servers = 2000, 1
    second.wake()
    first.wake()
    assert (first.result(), second.result()) == ("go", None)
    assert haproxy.halcyon_late() == 1


def test_late_request_that_counted_as_gone_is_answered() -> None:
    haproxy = started("late.lua", 30_000, OBJECTIVE_MS, 100, "http_a", **LATE)
    first, second = haproxy.arrive("late"), haproxy.arrive("late")
    haproxy.clock_ms = 5000
    second.wake()
    assert haproxy.halcyon_late() == 1
    first.wake()
    assert (first.result(), second.result()) == ("go", None)
    assert haproxy.halcyon_late() == 1


def test_late_requests_wait_although_haproxys_clock_is_behind_the_systems() -> None:
    haproxy = started("late.lua", 30_000, OBJECTIVE_MS, 100, "http_a", **LATE)
    haproxy.wall_ms = 60_000
    request = haproxy.arrive("late")
    haproxy.variables["proc.refused_at"] = haproxy.wall_ms - 2 * OBJECTIVE_MS
    haproxy.clock_ms = 3 * OBJECTIVE_MS
    request.wake()
    assert request.result() is None, "the last rejection is longer ago than the objective"
    haproxy.variables["proc.refused_at"] = haproxy.wall_ms
    request.wake()
    assert request.result() == "over"


def test_batch_request_that_may_go_goes_even_if_it_wakes_late() -> None:
    haproxy = started("lower.lua", 30_000, "http_a", **{"proc.room": 0, "proc.lower_rows": 100})
    first, second = haproxy.arrive("lower"), haproxy.arrive("lower")
    haproxy.variables["proc.room"] = 1
    second.wake()
    haproxy.clock_ms, haproxy.in_servers, haproxy.sent = 2000, 1, 1
    second.wake()
    first.wake()
    assert (first.result(), second.result()) == (None, None), "its place was taken in the meantime"
    haproxy.variables["proc.room"] = 3
    second.wake()
    first.wake()
    assert (first.result(), second.result()) == ("go", "go")
