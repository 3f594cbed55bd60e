"""Commands that would print for ever end if the reader of their output has closed the pipe, as `head` does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from halcyon_cli.arguments import options
from halcyon_cli.arguments.options import Output
from halcyon_cli.commands import logs, watch
from halcyon_cli.kube.client import Target
from tests.unit.cli import inventories

EMIT_TWICE = """
import sys, time
from halcyon_cli.arguments.options import emit
time.sleep(0.2)
print(emit("first"), emit("second"), file=sys.stderr)
"""


def test_emit_returns_once_that_there_is_no_reader() -> None:
    emitting = subprocess.Popen([sys.executable, "-c", EMIT_TWICE], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert emitting.stdout is not None
    emitting.stdout.close()
    assert emitting.stderr is not None
    assert emitting.stderr.read().decode().split() == ["False", "True"]
    emitting.stderr.close()
    assert emitting.wait() == 0


def test_followed_logs_end_with_their_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    class Logs:
        target = Target("logs")

        def follow_log(self, *_: object) -> Iterator[str]:
            return iter(["ready"] * 9)

    lines: list[str] = []
    cluster: Any = Logs()
    monkeypatch.setattr(logs, "emit", lines.append)
    assert logs._follow(cluster, ["m-a-1", "m-a-2"], "triton", {}, prefixed=True) == 0
    assert len(lines) == 1


def test_a_watch_ends_with_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []
    seen = inventories.steady()
    monkeypatch.setattr(watch, "read_inventory", lambda *_: seen)
    monkeypatch.setattr(watch, "changes", lambda *_: [(seen, f"warning {number}") for number in range(9)])
    monkeypatch.setattr(watch, "emit", pages.append)
    cluster: Any = None
    assert watch.follow(cluster, "digits", Output("table"), None) == 0
    assert len(pages) == 1


def test_a_terminal_without_escape_sequences_gets_plain_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []

    def shown(page: str) -> bool:
        pages.append(page)
        return True

    seen = inventories.steady()
    monkeypatch.setattr(watch, "read_inventory", lambda *_: seen)
    monkeypatch.setattr(watch, "changes", lambda *_: [(seen, "a warning")])
    monkeypatch.setattr(watch, "emit", shown)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    cluster: Any = None
    assert watch.follow(cluster, "digits", Output("table"), None) == 0
    assert len(pages) == 2
    assert (options.has_escapes(sys.stdout), options._use_color(no_color=False)) == (False, False)
    monkeypatch.setenv("TERM", "xterm")
    assert (options.has_escapes(sys.stdout), options._use_color(no_color=False)) == (True, True)
