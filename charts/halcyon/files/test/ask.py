"""Program of `helm test`: sends requests to a model until a response is correct, and reports the error if none is in time.

    ask.py URL SECONDS MODEL

MODEL is the ModelDeployment, as NAMESPACE/NAME, for messages. Exit status 0: the model has answered 3 and 5 to 1 and 2.
"""
# ruff: noqa: INP001, T201, S310  # a script; the address is the chart's own

import json
import sys
import time
import urllib.error
import urllib.request

REQUEST = {"inputs": [{"name": "x", "shape": [2, 1], "datatype": "FP32", "data": [1.0, 2.0]}]}
EXPECTED = [3.0, 5.0]


def ask(url: str) -> str:
    """Send one request; return what is wrong with the response, or an empty text."""
    request = urllib.request.Request(url, json.dumps(REQUEST).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            values = json.load(response)["outputs"][0]["data"]
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}: {error.read(300).decode(errors='replace').strip()}"
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return "" if values == EXPECTED else f"the answer to 1 and 2 is {values} instead of {EXPECTED}"


def main() -> int:
    """Send requests until a response is correct, or the time is over."""
    url, limit_s, model = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    began = time.monotonic()
    last_error = ""
    while error := ask(url):
        waited_s = time.monotonic() - began
        if error != last_error:
            print(f"after {waited_s:.0f} s: {error}", flush=True)
        last_error = error
        if waited_s > limit_s:
            namespace, _, name = model.partition("/")
            print(f"{model} has not answered within {limit_s:.0f} s; its conditions give the reason:")
            print(f"  kubectl --namespace {namespace} describe modeldeployment {name}")
            return 1
        time.sleep(1)
    print(f"{model} answers after {time.monotonic() - began:.0f} s: y(1) = 3, y(2) = 5")
    return 0


if __name__ == "__main__":
    sys.exit(main())
