"""What a bundle must not hold, and what it must."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.cli import redaction
from halcyon.cli.redaction import GONE

SECRET = "k3Vq8zPw0L"


@pytest.mark.parametrize(
    ("line", "gone"),
    [
        ("password=hunter2 user=bob", "hunter2"),
        ('{"api_key": "abcdef12345", "n": 1}', "abcdef12345"),
        ("Authorization: Bearer abcdefghij.klm", "abcdefghij.klm"),
        ("AWS_SECRET_ACCESS_KEY: wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI"),
        ("GET https://bob:hunter2@example.com/x", "hunter2"),
        ("key AKIAIOSFODNN7EXAMPLE was used", "AKIAIOSFODNN7EXAMPLE"),
        ("jwt eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSM", "SflKxwRJSM"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE cut off", "MIIE"),
    ],
)
def test_credentials_in_a_log_are_removed(line: str, gone: str) -> None:
    assert gone not in redaction.text(line)
    assert GONE in redaction.text(line)


@pytest.mark.parametrize(
    "line",
    [
        "Readiness probe failed: 503",
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        "MountVolume.SetUp failed for volume: secret not found",
        "tokenizer: bert, author: bob, TOKENIZERS_PARALLELISM=true",
        "I1122 10:00:00 server.cc:42 loading: resnet50:1",
    ],
)
def test_what_tells_of_the_trouble_stays(line: str) -> None:
    assert redaction.text(line) == line


def test_values_of_an_object_go_and_names_stay() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "managedFields": [1], "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "kept"}},
        "spec": {
            "containers": [{"env": [
                {"name": "DB_PASSWORD", "value": "hunter2"},
                {"name": "MODE", "value": "fast"},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "db", "key": "token"}}},
            ]}],
            "imagePullSecrets": [{"name": "registry"}],
            "volumes": [{"secret": {"secretName": "tls"}}],
        },
    }  # fmt: skip
    clean = redaction.obj(pod)
    env = clean["spec"]["containers"][0]["env"]

    assert [one.get("value") for one in env] == [GONE, "fast", None]
    assert env[2]["valueFrom"]["secretKeyRef"]["name"] == "db"
    assert clean["metadata"] == {"name": "p", "annotations": {"note": "kept"}}
    assert clean["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert clean["spec"]["volumes"] == [{"secret": {"secretName": "tls"}}]


def test_json_and_pbtxt_in_a_text_are_gone_through() -> None:
    accepted = json.dumps(
        {"runtime": {"env": [{"name": "DB_PASSWORD", "value": SECRET}, {"name": "MODE", "value": "x"}]}}
    )
    overlay = json.dumps({"parameters": {"hf_token": {"string_value": SECRET}, "gpu_ms": {"string_value": "5"}}})
    pbtxt = f'name: "m"\nparameters {{ key: "hf_token" value: {{ string_value: "{SECRET}" }} }}\nmax_batch_size: 4'
    clean = redaction.obj({"kind": "ConfigMap", "data": {"a.json": accepted, "o.json": overlay, "config.pbtxt": pbtxt}})

    assert SECRET not in json.dumps(clean)
    assert json.loads(clean["data"]["a.json"])["runtime"]["env"][1] == {"name": "MODE", "value": "x"}
    assert json.loads(clean["data"]["o.json"])["parameters"]["gpu_ms"] == {"string_value": "5"}
    assert clean["data"]["config.pbtxt"].endswith("max_batch_size: 4")


def test_of_a_secret_only_its_names_are_left() -> None:
    clean = redaction.obj({"kind": "Secret", "data": {"a": "aHVudGVyMg=="}, "stringData": {"b": "x"}})

    assert clean == {"kind": "Secret", "data": {"a": GONE}, "stringData": {"b": GONE}}


def test_a_parameter_of_the_model_that_is_secret_goes() -> None:
    clean = redaction.obj({"parameters": {"hf_token": {"string_value": "hf_abc"}, "gpu_ms": {"string_value": "5"}}})

    assert clean == {"parameters": {"hf_token": {"string_value": GONE}, "gpu_ms": {"string_value": "5"}}}


@given(
    st.recursive(
        st.sampled_from(["x", 1, None, f"password={SECRET}", f"token: {SECRET}"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["a", "password", "apiKey"]), inner, max_size=3)
        ),
    )
)
def test_a_secret_is_found_however_deep_it_lies(value: object) -> None:
    assert SECRET not in json.dumps(redaction.obj({"kind": "Pod", "value": value}))
