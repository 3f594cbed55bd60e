"""Streams of the dashboard's pages over time (`static/api.js`)."""

from typing import Any

from tests.unit.dashboard.static.page_script import run

FOLLOW = """
const { follow } = await page("api.js");
const states = (result.states = []), documents = (result.documents = []), failures = (result.failures = []);
const listener = {
  document: (value) => documents.push(value), state: (live, why) => states.push(live ? "Live" : why), failed: (error) => failures.push(error.status),
};
globalThis.respond = () => ({ status: 200, body: "polled" });
const end = follow("/stream", "/plain", "model", listener);
"""


def followed(script: str) -> Any:
    """Return what a page that follows a stream has shown."""
    return run(
        FOLLOW
        + script
        + "\nresult.streams = streams.map((each) => each.readyState); result.requests = requests.length;"
    )


def test_a_stream_without_any_event_is_replaced_by_polling() -> None:
    shown = followed("await pass(40_000);")  # a proxy buffers the stream
    assert 5 <= shown["requests"] <= 8
    assert shown["documents"] == ["polled"] * shown["requests"]
    assert "Live" not in shown["states"]


def test_a_buffering_proxy_gets_a_new_stream_once_a_minute() -> None:
    shown = followed("await pass(180_000);")
    assert 3 <= len(shown["streams"]) <= 4
    assert shown["streams"].count(2) >= 2, "a stream without events is closed before the next one"


def test_a_silent_stream_is_not_live() -> None:
    shown = followed('streams[0].send("model", "first"); await pass(45_000);')  # the connection is half open
    assert shown["documents"] == ["first", "polled"]
    assert shown["states"][-1] != "Live"
    assert shown["streams"][0] == 2


def test_a_stream_with_beats_stays_live() -> None:
    shown = followed(
        'streams[0].send("model", "first"); for (let n = 0; n < 20; n += 1) { await pass(15_000); streams[0].send("beat", 0); }'
    )
    assert shown["states"][-1] == "Live"
    assert (shown["requests"], shown["streams"]) == (0, [1])


def test_a_beat_after_a_lost_connection_is_live_again() -> None:
    shown = followed('streams[0].send("model", "first"); streams[0].fail(0); streams[0].send("beat", 0);')
    assert shown["states"][-2:] == ["Connection lost; reconnecting.", "Live"]


def test_a_hidden_tab_gives_its_connection_back_after_a_minute() -> None:
    shown = followed(
        'streams[0].send("model", "first"); document.hidden = true; document.emit("visibilitychange");'
        'for (let n = 0; n < 8; n += 1) { await pass(15_000); if (streams[0].readyState === 1) streams[0].send("beat", 0); }'
    )
    assert shown["streams"] == [2]
    assert (shown["requests"], shown["states"][-1]) == (0, "Paused while the tab is hidden.")


def test_a_tab_in_sight_again_opens_its_stream_at_once() -> None:
    hide = 'document.hidden = true; document.emit("visibilitychange"); await pass(3_600_000);'
    show = 'document.hidden = false; document.emit("visibilitychange");'
    *closed, newest = followed(f'streams[0].send("model", "first"); {hide} {show}')["streams"]
    assert (set(closed), newest) == ({2}, 0)
    assert set(followed(f'streams[0].send("model", "first"); {hide} end(); {show}')["streams"]) == {2}


def test_a_response_from_before_a_pause_opens_no_second_stream() -> None:
    hang = "let reply; respond = () => new Promise((resolve) => { reply = resolve; }); streams[0].fail(2);"
    hide = 'document.hidden = true; document.emit("visibilitychange"); await pass(61_000);'
    show = 'document.hidden = false; document.emit("visibilitychange"); await pass(1_000);'
    late = 'streams.at(-1).send("model", "new"); reply({ status: 200, body: "old" }); await pass(6_000);'
    shown = followed(f'streams[0].send("model", "first"); {hang} {hide} {show} {late}')
    assert shown["documents"] == ["first", "new"]
    assert shown["streams"] == [2, 1]


def test_a_rejected_stream_changes_the_state_once_per_poll() -> None:
    shown = followed("streams[0].fail(2); await pass(1);")
    assert shown["states"] == ["Updates every 5 s: no live stream is available now."]


def test_a_page_without_rights_polls_no_longer_once_it_is_left() -> None:
    shown = followed(
        "globalThis.respond = () => ({ status: 403, body: { error: 'no' } }); streams[0].fail(2); await pass(1); end(); await pass(60_000);"
    )
    assert (shown["failures"], shown["requests"]) == ([403], 1)


def test_an_ended_session_of_a_proxy_leads_to_the_sign_in() -> None:
    redirected = (
        "globalThis.respond = () => ({ status: 0, type: 'opaqueredirect' }); streams[0].fail(2); await pass(60_000);"
    )
    rejected = "globalThis.respond = () => ({ status: 401, body: {} }); streams[0].fail(2); await pass(60_000);"
    for script in (redirected, rejected):
        shown = followed(
            f"const messages = (result.messages = []); listener.failed = (error) => messages.push(error.message); {script}"
        )
        assert shown["messages"] == ["Your session has ended. Reload the page to sign in again."]
        assert shown["requests"] == 1
