"""What `helm test` runs: asks the model until it answers rightly, and tells what is wrong where it doesn't in time.

    ask.py URL SECONDS WHAT

WHAT is the ModelDeployment, for the message. Exit status 0: it has answered 3 and 5 to 1 and 2.
"""
# ruff: noqa: INP001, T201, S310  # a script; the address is the chart's own

import json
import sys
import time
import urllib.error
import urllib.request

ASKED = {"inputs": [{"name": "x", "shape": [2, 1], "datatype": "FP32", "data": [1.0, 2.0]}]}
RIGHT = [3.0, 5.0]


def ask(url: str) -> str:
    """Ask once; what is wrong with the answer, or nothing."""
    request = urllib.request.Request(url, json.dumps(ASKED).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            said = json.load(answer)["outputs"][0]["data"]
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}: {error.read(300).decode(errors='replace').strip()}"
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return "" if said == RIGHT else f"the answer to 1 and 2 is {said} instead of {RIGHT}"


def main() -> int:
    """Ask until the time is over."""
    url, limit_s, what = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    began = time.monotonic()
    before = ""
    while wrong := ask(url):
        waited_s = time.monotonic() - began
        if wrong != before:
            print(f"after {waited_s:.0f} s: {wrong}", flush=True)
        before = wrong
        if waited_s > limit_s:
            namespace, _, name = what.partition("/")
            print(f"{what} has not answered within {limit_s:.0f} s; its conditions say why:")
            print(f"  kubectl --namespace {namespace} describe modeldeployment {name}")
            return 1
        time.sleep(1)
    print(f"{what} answers after {time.monotonic() - began:.0f} s: y(1) = 3, y(2) = 5")
    return 0


if __name__ == "__main__":
    sys.exit(main())
