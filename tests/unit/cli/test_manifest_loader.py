"""Types of unquoted values in manifests: those of kubectl 1.35, whose `label --local -o json` shows them."""

from __future__ import annotations

import json

import pytest

from halcyon_cli.manifest_loader import documents

# kubectl's values, as `kubectl label --local -f FILE -o json x=y` prints them.
OF_KUBECTL = """
8:30 "8:30"
1:30:00 "1:30:00"
2026-01-01 "2026-01-01"
2026-01-01T00:00:00Z "2026-01-01T00:00:00Z"
= "="
~ null
1e3 1000
1E1 10
1e-3 0.001
1.5e3 1500
12345e7 123450000000
99999999999999999999 100000000000000000000
1e21 1e+21
5. 5
.5 0.5
.5_0 0.5
1_0e3 10000
1_000.5 1000.5
010 8
0o10 8
0o_7 7
0o8 "0o8"
08 8
09 9
00 0
0x10 16
0x_1 1
0b11 3
-0b11 -3
0B1 1
1_000 1000
+5 5
-0 0
y true
Y true
yes true
on true
n false
Off false
yEs "yEs"
1.2.3 "1.2.3"
v1 "v1"
500m "500m"
"""


@pytest.mark.parametrize(("text", "value"), [line.split() for line in OF_KUBECTL.split("\n") if line])
def test_an_unquoted_value_has_the_type_that_kubectl_gives_it(text: str, value: str) -> None:
    (document,) = documents(f"a: {text}\nb: '{text}'\n")
    assert json.loads(value) == document["a"]
    assert type(document["a"]) is type(json.loads(value))
    assert document["b"] == text


def test_keys_of_merged_objects_are_kept() -> None:
    (document,) = documents("base: &b {a: 1, on: 2}\nmodel: {<<: *b, a: 3}\n")
    assert document["model"] == {"a": 3, True: 2}
