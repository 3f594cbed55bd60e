"""The commands in runbooks and alerts: the first lines name one, and the command line accepts each of its own."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from generators.monitoring import queries
from generators.monitoring.alerts import ALERTS
from halcyon_cli.commands.app import group
from tests.integration.alert_cases import PLACES

PAGES = Path(__file__).parents[3] / "docs" / "runbooks"
TOP = ("Users notice:", "Do first:", "It is over when", "Severity:")
PLACEHOLDERS = {"NAME", "NAMESPACE", "POD", "BATCH", "SECRET", "VERB", "RESOURCE", "GROUP", "FILE", "IP"}
"""Words in capitals that a reader replaces."""
KEPT = {"CPU", "GPU", "GPUS", "QUEUE", "NOTE", "TYPE", "CRD", "URL", "HTTP", "HPA", "BACKEND", "OTHER", "REJECTED"}
"""Words in capitals that are printed as they are."""
TEXTS = {page.stem: page.read_text() for page in sorted(PAGES.glob("Halcyon*.md"))}


def spans(text: str) -> list[str]:
    """Return the code in a page: spans of a line, and commands in blocks."""
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    commands = re.findall(r"^\$ (.+)$", text, re.MULTILINE)
    return [*(" ".join(span.split()) for span in re.findall(r"`([^`]+)`", outside)), *commands]


def commands(text: str) -> list[str]:
    """Return the commands of Halcyon in a text, each with its arguments."""
    words = (re.split(r" \||;|\)", span)[0].strip() for span in spans(text))
    # A name alone, such as `halcyon explain`, is a word of a sentence.
    return [word.partition("halcyon ")[2] for word in words if re.match(r"(kubectl )?halcyon \w+ .", word)]


OF_ALERTS = {
    alert.name: re.findall(r"kubectl halcyon ([^;]+?)(?:;|$)", queries.replaced(alert.description, PLACES))
    for alert in ALERTS
}
COMMANDS = sorted(
    {command for text in TEXTS.values() for command in commands(text)} | {c for cs in OF_ALERTS.values() for c in cs}
)


def parse(command: click.Command, arguments: list[str]) -> None:
    """Parse the arguments of a command as the command line does, and run nothing."""
    context = command.make_context(command.name, arguments)
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, subcommand, rest = context.command.resolve_command(context, rest)
        assert subcommand is not None
        context = subcommand.make_context(name, rest, parent=context)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_line_accepts_each_command_of_a_runbook(command: str) -> None:
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"\1", command)

    parse(group, shlex.split(text))


@pytest.mark.parametrize("name", TEXTS)
def test_a_runbook_begins_with_the_loss_the_first_step_and_the_end(name: str) -> None:
    begin = TEXTS[name].split("\n\n")[1]
    bullets = re.split(r"^- ", begin, flags=re.MULTILINE)[1:]

    assert [re.findall(r"^\*\*(.+?)\*\*", bullet) for bullet in bullets] == [[head] for head in TOP]
    assert all(bullet.rstrip().endswith(".") for bullet in bullets)
    first = bullets[1]
    assert "`" in first or "targets page" in first, "the first step names a command, a field or a page"


@pytest.mark.parametrize("name", TEXTS)
def test_commands_about_a_model_name_its_namespace(name: str) -> None:
    """The namespace of the reader's context is another one."""
    about = [span for span in spans(TEXTS[name]) if re.search(r"kubectl .*\b(NAME|POD|BATCH)\b", span)]
    about = [span for span in about if "halcyon-system" not in span]

    assert [span for span in about if not re.search(r"-n NAMESPACE\b|-A\b", span)] == []


@pytest.mark.parametrize("name", TEXTS)
def test_placeholders_of_a_runbook_are_known_words(name: str) -> None:
    code = " ".join(spans(TEXTS[name]))
    words = set(re.findall(r"(?<![\w.=\"'-])[A-Z]{2,}(?![\w%])", re.sub(r"'[^']*'", "", code)))

    assert words - PLACEHOLDERS - KEPT == set()


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_commands_of_an_alert_have_no_placeholder(alert: object) -> None:
    """Labels are filled in, so a command that needs more can't be run as it is printed."""
    text = re.sub(r"\{\{[^}]*\}\}", "x", str(alert))

    assert set(re.findall(r"\b(?:POD|NAME|NAMESPACE|BATCH)\b", text)) == set()
