"""The user's function `prepare`: its arrays become tensors of the model's types, or an error with the line."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halcyon_measure.engine.hooks import Hooks, HookSettings, load
from halcyon_measure.errors import HookError
from halcyon_measure.inputs.tensors import ModelInput
from halcyon_measure.protocols import target
from halcyon_measure.protocols.reply import Prepared


def _prepared(path: Path, returned: str, kind: str) -> Prepared:
    path.write_text(f"import numpy as np\ndef prepare(number):\n    return {returned}\n")
    to = target.parse("http://host", api="kserve", transport=None, encoding=None, model="m")
    inputs = (ModelInput("x", kind, (-1, 2)), ModelInput("seed", "INT32", (-1, 1), is_optional=True))
    hooks = Hooks(HookSettings(prepare=f"{path}:prepare"), replace(to, inputs=inputs))
    try:
        return asyncio.run(hooks.prepare(0))
    finally:
        hooks.close()


@pytest.mark.parametrize("returned", ["np.array([[1, 2]], np.int32)", "np.array([1.0, 2.0])", "{'x': [[1, 2]]}"])
def test_arrays_of_prepare_are_sent_in_the_type_of_the_model(tmp_path: Path, returned: str) -> None:
    request = _prepared(tmp_path / "hook.py", returned, "FP32")
    assert request.header_length is not None
    assert request.body[request.header_length :] == np.array([1, 2], "<f4").tobytes()
    assert b'"shape": [1, 2]' in request.body


def test_arrays_of_prepare_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HookError, match=r"input x: not every value is an integer in the range of INT64.*in request 0"):
        _prepared(tmp_path / "hook.py", "np.array([[1.5, 2]])", "INT64")


def test_a_function_that_exits_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(HookError, match=r"hook\.py, line 3: SystemExit: 0, in request 0"):
        _prepared(tmp_path / "hook.py", "exit(0)", "FP32")


def test_a_file_of_functions_that_exits_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "hook.py"
    path.write_text("import sys\ndef prepare(n):\n    return n\nsys.exit(0)\n")
    with pytest.raises(HookError, match=r"hook\.py, line 4: SystemExit: 0"):
        load(f"{path}:prepare")


def test_functions_are_busy_only_for_their_time_in_the_measured_part(tmp_path: Path) -> None:
    path = tmp_path / "hook.py"
    path.write_text(
        "import time\nimport numpy as np\ndef prepare(n):\n    time.sleep(0.4)\n    return np.ones((1, 2))\n"
    )
    to = target.parse("http://host", api="kserve", transport=None, encoding=None, model="m")
    hooks = Hooks(HookSettings(prepare=f"{path}:prepare"), replace(to, inputs=(ModelInput("x", "FP32", (-1, 2)),)))

    async def work() -> None:
        await hooks.prepare(0)  # in the warm-up
        assert hooks.busy_s == 0
        hooks.measured_from = time.monotonic()
        await hooks.prepare(1)
        assert hooks.busy_s == pytest.approx(0.4, abs=0.1)
        hooks.measured_until = time.monotonic()
        await hooks.prepare(2)  # while the last answers are awaited
        assert hooks.busy_s == pytest.approx(0.4, abs=0.1)

    try:
        asyncio.run(work())
    finally:
        hooks.close()


_KILLED = """
import asyncio, os
from dataclasses import replace
from halcyon_measure.engine.hooks import Hooks, HookSettings
from halcyon_measure.protocols import target

async def work(hooks):
    waiting = asyncio.ensure_future(hooks.prepare(0))
    while not os.path.exists({began!r}):
        await asyncio.sleep(0.05)
    os.kill(os.getpid(), 9)

if __name__ == "__main__":
    to = target.parse("http://host", api="kserve", transport=None, encoding=None, model="m")
    asyncio.run(work(Hooks(HookSettings(prepare={prepare!r}), to)))
"""


def test_process_of_a_function_ends_with_the_killed_worker(tmp_path: Path) -> None:
    hook, began, script = tmp_path / "hook.py", tmp_path / "began", tmp_path / "killed.py"
    hook.write_text(
        f"import pathlib, time\ndef prepare(number):\n    pathlib.Path({str(began)!r}).touch()\n    time.sleep(600)\n"
    )
    script.write_text(_KILLED.format(began=str(began), prepare=f"{hook}:prepare"))
    # The output ends once the last process that has inherited it has ended.
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, timeout=120, check=False)
    assert began.exists()
    assert ended.returncode == -signal.SIGKILL


_PRINTS = """
import asyncio
import multiprocessing
from dataclasses import replace
from halcyon_measure.engine.hooks import Hooks, HookSettings, load
from halcyon_measure.inputs.tensors import ModelInput
from halcyon_measure.protocols import target

if __name__ == "__main__":
    to = target.parse("http://host", api="kserve", transport=None, encoding=None, model="m")
    load({prepare!r})
    hooks = Hooks(HookSettings(prepare={prepare!r}), replace(to, inputs=(ModelInput("x", "FP32", (-1, 2)),)))
    asyncio.run(hooks.prepare(7))
    hooks.close()
"""


def test_processes_of_idle_functions_have_ended_after_close(tmp_path: Path) -> None:
    hook = tmp_path / "hook.py"
    hook.write_text("def prepare(number):\n    return {'x': [[1.0, 2.0]]}\n")
    to = target.parse("http://host", api="kserve", transport=None, encoding=None, model="m")
    before = set(multiprocessing.active_children())
    inputs = (ModelInput("x", "FP32", (-1, 2)),)
    hooks = Hooks(HookSettings(prepare=f"{hook}:prepare", processes=2), replace(to, inputs=inputs))
    asyncio.run(hooks.prepare(7))
    assert set(multiprocessing.active_children()) - before
    hooks.close()
    assert set(multiprocessing.active_children()) == before


def test_prints_of_a_function_are_no_events_of_its_worker(tmp_path: Path) -> None:
    hook, script = tmp_path / "hook.py", tmp_path / "prints.py"
    hook.write_text(
        "print('loaded')\ndef prepare(number):\n    print('request', number)\n    return {'x': [[1.0, 2.0]]}\n"
    )
    script.write_text(_PRINTS.format(prepare=f"{hook}:prepare"))
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True)
    assert (ended.stdout, sorted(ended.stderr.split())) == ("", ["7", "loaded", "loaded", "request"])
