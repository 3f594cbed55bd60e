"""docs/guides/dashboard.md: the ways to the dashboard, by the page's own commands."""

import contextlib
import re
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator

from demo.kube import SYSTEM, Kube
from demo.models import REPOSITORY
from e2e.guides.conftest import environment, run_steps
from e2e.shown_output import Step, console_steps, difference

PAGE = REPOSITORY / "docs" / "guides" / "dashboard.md"
CHART = REPOSITORY / "charts" / "halcyon"


def port_of(step: Step) -> str:
    """Return the port on this machine that the page has."""
    return step.script.rpartition(" ")[2]


@contextlib.contextmanager
def forwarded(step: Step, kube: Kube) -> Iterator[int]:
    """Run the command while the block runs, and yield the port on this machine."""
    assert step.output is not None
    # A free port instead of the page's, which another program of this machine may have.
    command = re.sub(r" (\d+)$", r" :\1", step.script)
    with subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        env=environment(kube),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as forwarding:
        try:
            assert forwarding.stdout is not None
            line = forwarding.stdout.readline()
            match = re.match(r"Forwarding from 127\.0\.0\.1:(\d+) ->", line)
            assert match is not None, line
            assert difference(step.output.splitlines()[0].replace(port_of(step), match[1], 1), line) is None
            yield int(match[1])
        finally:
            forwarding.terminate()


def answer(url: str, token: str = "") -> tuple[int, str]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # its authority is the operator's own
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def upgrade(kube: Kube, *values: str) -> None:
    kube.helm("upgrade", "halcyon", str(CHART), f"--namespace={SYSTEM}", "--reuse-values", "--wait", *values)


def test_it_is_reached_as_the_page_says(kube: Kube) -> None:
    on_localhost, by_service, make_token, _ = console_steps(PAGE)  # the last is run by tests/integration/dashboard

    with forwarded(on_localhost, kube) as port:
        status, page = answer(f"http://localhost:{port}/")
        assert (status, "<title>Halcyon" in page) == (200, True)
        assert answer(f"http://localhost:{port}/api/models")[0] == 200

    upgrade(kube, "--set=dashboard.listen=pod")
    try:
        (printed,) = run_steps([make_token.script.replace("NAMESPACE", "default")], environment(kube), limit_s=30)
        assert difference(make_token.output or "", printed) is None
        token = printed.strip()
        with forwarded(by_service, kube) as port:
            assert answer(f"https://localhost:{port}/api/models")[0] == 401
            assert answer(f"https://localhost:{port}/api/models", token)[0] == 200
    finally:
        upgrade(kube, "--set=dashboard.listen=localhost")
