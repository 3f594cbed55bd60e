"""Times at which a fault campaign stood still, in a process that is suspended."""

import os
import signal
import subprocess
import sys
import time

_PROGRAM = """
import time
from tests.faults.site import Standstills
with Standstills(limit_s=0.4) as stills:
    began = time.monotonic()
    print(stills.since(began), flush=True)
    input()
    time.sleep(0.2)
    print(stills.since(began), stills.since(time.monotonic()), flush=True)
"""


def test_suspended_processes_have_a_standstill_from_then_on() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "False\n"
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(process.pid, signal.SIGCONT)
    assert process.communicate("\n", timeout=60)[0] == "True False\n"
