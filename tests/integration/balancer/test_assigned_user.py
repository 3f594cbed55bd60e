"""HAProxy, the agent and the operator as a user that a platform has assigned, as OpenShift does: any id, group 0, no name."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.balanced import http_response, new_balanced

pytestmark = pytest.mark.more

UID = 1000710000
_MAIN = "from halcyon.main import main; main()"
ROOT = Path(__file__).resolve().parents[3]


async def test_haproxy_serves_as_an_assigned_user() -> None:
    async with new_balanced() as balanced:
        folder = balanced.haproxy.directory
        await balanced.turn()
        for path in (folder, *folder.iterdir()):
            os.chown(path, UID, 0)
        balanced.haproxy.user = [f"--userspec={UID}:0", "--groups="]
        await balanced.begin()
        owner = await asyncio.to_thread(Path(f"/proc/{balanced.haproxy.workers()[0]}").stat)
        assert (owner.st_uid, owner.st_gid) == (UID, 0)
        await balanced.start()
        await balanced.turn()
        answered, _, _ = await http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer")
        assert answered == 200


@pytest.mark.parametrize("part", ["agent", "fetch", "operator"])
def test_a_subcommand_starts_as_a_user_without_a_name(part: str) -> None:
    user = ["setpriv", f"--reuid={UID}", "--regid=0", "--clear-groups"]
    done = subprocess.run(
        [*user, sys.executable, "-c", _MAIN, part, "--help"],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"PYTHONPATH": str(ROOT / "operator"), "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert (done.returncode, "usage: halcyon" in done.stdout) == (0, True), done.stderr
