"""The shell session in which README's commands are measured and recorded."""

import os

import pytest

from benchmarks.adoption.first_model import Terminal


def session() -> Terminal:
    return Terminal({"PATH": os.environ["PATH"]})


@pytest.mark.parametrize("command", ["sleep 60; true", "while true; do echo waiting; done"], ids=["silent", "printing"])
def test_command_over_its_time_limit_fails(command: str) -> None:
    terminal = session()
    with pytest.raises(RuntimeError, match=r"not ended within 0\.2 s"):
        terminal.run(command, limit_s=0.2)
    assert terminal.now_s < 30


def test_failed_command_has_its_status_and_output() -> None:
    with pytest.raises(RuntimeError, match=r"exit status 3\nno such model"):
        session().run("echo no such model; exit 3")


def test_session_records_the_shown_command_and_its_output() -> None:
    terminal = session()
    assert terminal.run("echo ready", shown="kubectl wait") == "ready\n"
    assert [text for _, text in terminal.events] == ["$ kubectl wait\n", "ready\n"]
