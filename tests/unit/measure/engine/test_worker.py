"""A worker's job from its first command to its last event."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, cast

import pytest

from halcyon_measure.engine.event_loop import new_event_loop
from halcyon_measure.engine.job import Job, PayloadSettings
from halcyon_measure.engine.worker import Usage, Worker
from halcyon_measure.protocols import connect, target
from halcyon_measure.protocols.reply import Outcome, Prepared, Reply
from halcyon_measure.schedule.scenario import Scenario


class Client:
    """A client whose requests are answered after all of them were sent."""

    def __init__(self, requests: int) -> None:
        self.requests, self.sent, self.answered = requests, 0, 0
        self.all_sent = asyncio.Event()

    def encode(self, _: object) -> Prepared:
        return Prepared(b"", 1)

    async def send(self, request: Prepared, number: int) -> Reply:
        self.sent += 1
        if self.sent == self.requests:
            self.all_sent.set()
        await self.all_sent.wait()
        self.answered += 1
        return Reply(Outcome.ANSWERED, "", time.monotonic(), request.body, str(number))

    async def close(self) -> None:
        return


class AnswerUsage(Usage):
    """Usage that counts the answers of a client in place of seconds of CPU."""

    client: Client

    def to_dict(self) -> dict[str, float]:
        return {"cpu_s": self.client.answered}


def test_use_of_an_offline_run_is_read_after_its_last_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"1")
    job = Job(
        target=target.parse("http://host", api="post", transport=None, encoding=None, model=""),
        scenario=Scenario(kind="offline", requests=20, callers=64),
        payload=PayloadSettings(samples=((("", str(body)),),)),
        result=str(tmp_path / "requests.npz"),
    )

    async def run() -> dict[str, Any]:
        client, usage = Client(20), AnswerUsage()
        usage.client = client
        monkeypatch.setattr(connect, "client", lambda *_, **__: cast(Any, client))
        worker = Worker(job, usage)
        now = time.monotonic()
        worker.command({"begin": now, "measure": now, "end": now + 30})
        return await worker.run()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        done = runner.run(run())
    # A run that only sends uses all of its core, as if the client were its limit.
    assert done["cpu_s"] == 20
