"""What a bundle must not hold, and what it must."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon_cli.diagnose import redaction
from halcyon_cli.diagnose.redaction import REMOVED
from tests.unit.cli.diagnose.secret_lines import HARMLESS, secrets

SECRET = "k3Vq8zPw0L"


@pytest.mark.parametrize(
    ("line", "secret"),
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
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz", "b3BlbnNz"),
        ("OPENAI_KEY=abcdef12345", "abcdef12345"),
        ("LICENSE_KEY: AAA-BBB", "AAA-BBB"),
        ('{"licenseKey": "AAA-BBB"}', "AAA-BBB"),
        ("x-functions-key: abcdef12345", "abcdef12345"),
        ("SLACK_WEBHOOK=https://example.com/T0/B0", "T0/B0"),
        ("posting to https://hooks.slack.com/services/T0/B0/XXXX", "T0/B0/XXXX"),
        ("webhook_url: https://example.com/hook/abc", "hook/abc"),
        ("Server=h;Uid=u;Pwd=hunter2", "hunter2"),
        ("DRIVER=x;UID=u;PWD=hunter2;", "hunter2"),
        ("GET https://x.blob.core.windows.net/c/m?sv=1&sig=abcdef%3D", "abcdef"),
        ("GET https://x.blob.core.windows.net/c/m?sig=abcdef%3D&sv=1", "abcdef"),
        (r'{"url": "https://h/m?sv=1\u0026sig=abcdef%3D"}', "abcdef"),
        ("SharedAccessSignature: sig=Zm9vYmFyYmF6Zm9vYmFyYmF6%3D", "Zm9vYmFy"),
        ("https://b.s3.amazonaws.com/m?X-Amz-Signature=deadbeef&X-Amz-Date=1", "deadbeef"),
        ("X-Amz-Signature: deadbeef", "deadbeef"),
        ("https://storage.googleapis.com/b/m?X-Goog-Signature=deadbeef", "deadbeef"),
        ("https://maps.example.com/?key=abcdef12345", "abcdef12345"),
        ("logged in with hf_abcdefghijklmnop", "hf_abcdefghijklmnop"),
        ("ghp_0123456789012345678901234567890123ab", "ghp_01234"),
        ("github_pat_0123456789_abcdefghijkl", "github_pat_0"),
        ("using sk-ant-abc123", "abc123"),
        ("using sk-proj-abcdef", "abcdef"),
        ("using sk-0123456789abcdef0123", "0123456789"),
        ("nvapi-0123456789abcdef0123", "0123456789"),
        ("redis://:hunter2@redis:6379/0", "hunter2"),
        (r'msg="{\"password\": \"hunter2\", \"n\": 1}"', "hunter2"),
        ("url=https://h/m?a=1&token=abcdef12345", "abcdef12345"),
        ("PASSWORD='correct horse battery'", "battery"),
        ('INFO {"password": "a,b;hunter2", "n": 1}', "hunter2"),
        (r'INFO {"password": "a\" hunter2", "n": 1}', "hunter2"),
        (r'msg="{\"password\": \"a, hunter2\", \"n\": 1}"', "hunter2"),
        ("password='a, hunter2", "a,"),
        ("postgres://bob:a@b@hunter2@db:5432/x", "hunter2"),
        ("mysql --password hunter2 --user bob", "hunter2"),
        ("--http-restricted-api=shared-memory,trace,logging:halcyon=0a1b2c3d4e", "0a1b2c3d4e"),
        ("--grpc-restricted-protocol=shared-memory,trace,logging:halcyon=0a1b2c3d4e", "0a1b2c3d4e"),
        ("run --api-key  abcdef12345", "abcdef12345"),
        ("os.environ['OPENAI_API_KEY'] = 'abcdef12345'", "abcdef12345"),
        ("PWD='/srv/x password=hunter2'", "hunter2"),
    ],
)
def test_credentials_in_a_log_are_removed(line: str, secret: str) -> None:
    assert secret not in redaction.text(line)
    assert REMOVED in redaction.text(line)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('{"token": "a b", "user": "bob"}', '{"token": "(removed)", "user": "bob"}'),
        ("password='' user='bob'", "password='' user='bob'"),
        ("mysql --password --user bob", "mysql --password --user bob"),
        ("vllm serve --max-tokens 512 --tokenizer bert", "vllm serve --max-tokens 512 --tokenizer bert"),
        ("http://u:p@a/x,b@c", "http://(removed)@a/x,b@c"),
        ('urls="http://u:p@a","b@c"', 'urls="http://(removed)@a","b@c"'),
        ("mysql --password 'a b' --user bob", "mysql --password '(removed)' --user bob"),
        ("password=b'a' user=bob", "password=b'(removed)' user=bob"),
        ("db:\n  password: |\n    a\n\n    b\n  user: bob", "db:\n  password: |\n(removed)\n  user: bob"),
        (r'{"a": "password: |\n  x\nuser: b", "c": 1}', r'{"a": "password: |\n(removed)\nuser: b", "c": 1}'),
        ('{"api_keys": ["a", "b]"], "user": ["c"]}', '{"api_keys": ["(removed)", "(removed)"], "user": ["c"]}'),
        ("<password>a</password><user>b</user>", "<password>(removed)</password><user>b</user>"),
        ("curl -u bob:a http://b", "curl -u bob:(removed) http://b"),
        ("curl -u 'bob:a b' http://b", "curl -u 'bob:(removed)' http://b"),
    ],
)
def test_only_the_secret_of_a_line_is_removed(line: str, shown: str) -> None:
    assert redaction.text(line) == shown


def test_an_argument_goes_if_the_option_before_it_says_so() -> None:
    args = ["--user", "bob", "--password", "hunter2", "--port", "80", "--token"]
    assert redaction.resource({"args": args}) == {
        "args": ["--user", "bob", "--password", REMOVED, "--port", "80", "--token"]
    }


@pytest.mark.parametrize(
    "line",
    [
        "Readiness probe failed: 503",
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        "MountVolume.SetUp failed for volume: secret not found",
        "tokenizer: bert, author: bob, TOKENIZERS_PARALLELISM=true",
        "I1122 10:00:00 server.cc:42 loading: resnet50:1",
        "PWD=/opt/tritonserver OLDPWD=/root",
        "topologyKey: kubernetes.io/hostname, sort_key=name, public_key=abc, key: nvidia.com/gpu",
        'failed calling webhook "validate.x.io": Post "https://cert-manager-webhook.cert-manager.svc:443/v": EOF',
        "terminated by sig=9; the signature: serving_default",
        "risk-averse, disk-pressure-taint-was-found, task-0123456789abcdef01",
        "open /etc/tls/tls.key: no such file or directory",
    ],
)
def test_descriptions_of_the_failure_stay(line: str) -> None:
    assert redaction.text(line) == line


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("OPENAI_KEY", "abc", REMOVED),
        ("LICENSE_KEY", "AAA-BBB", REMOVED),
        ("SLACK_WEBHOOK", "https://example.com/T0", REMOVED),
        ("DB_PWD", "hunter2", REMOVED),
        ("PWD", "hunter2", REMOVED),
        ("PWD", "/opt/tritonserver", "/opt/tritonserver"),
        ("DATABASE_DSN", "Server=h;Uid=u;Pwd=hunter2", f"Server=h;Uid=u;Pwd={REMOVED}"),
        ("CACHE_KEY", "resnet50", "resnet50"),
        ("KEYBOARD", "us", "us"),
    ],
)
def test_a_variable_s_value_goes_if_its_name_or_form_says_so(name: str, value: str, shown: str) -> None:
    assert redaction.resource({"env": [{"name": name, "value": value}]}) == {"env": [{"name": name, "value": shown}]}


@pytest.mark.parametrize(("line", "secret"), secrets())
def test_no_secret_of_the_corpus_stays(line: str, secret: str) -> None:
    shown = redaction.text(line)

    assert secret not in shown
    assert REMOVED in shown


@pytest.mark.parametrize("line", HARMLESS)
def test_every_harmless_line_stays_as_it_is(line: str) -> None:
    assert redaction.text(line) == line


def test_the_corpus_has_two_hundred_secrets_and_a_hundred_other_lines() -> None:
    assert len({line for line, _ in secrets()}) >= 200
    assert len(set(HARMLESS)) >= 100


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
    clean = redaction.resource(pod)
    env = clean["spec"]["containers"][0]["env"]

    assert [variable.get("value") for variable in env] == [REMOVED, "fast", None]
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
    clean = redaction.resource(
        {"kind": "ConfigMap", "data": {"a.json": accepted, "o.json": overlay, "config.pbtxt": pbtxt}}
    )

    assert SECRET not in json.dumps(clean)
    assert json.loads(clean["data"]["a.json"])["runtime"]["env"][1] == {"name": "MODE", "value": "x"}
    assert json.loads(clean["data"]["o.json"])["parameters"]["gpu_ms"] == {"string_value": "5"}
    assert clean["data"]["config.pbtxt"].endswith("max_batch_size: 4")


def test_the_names_alone_of_a_secret_are_left() -> None:
    clean = redaction.resource({"kind": "Secret", "data": {"a": "aHVudGVyMg=="}, "stringData": {"b": "x"}})

    assert clean == {"kind": "Secret", "data": {"a": REMOVED}, "stringData": {"b": REMOVED}}


def test_a_parameter_of_the_model_that_is_secret_goes() -> None:
    clean = redaction.resource(
        {"parameters": {"hf_token": {"string_value": "hf_abc"}, "gpu_ms": {"string_value": "5"}}}
    )

    assert clean == {"parameters": {"hf_token": {"string_value": REMOVED}, "gpu_ms": {"string_value": "5"}}}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"password": 12345678}, {"password": REMOVED}),
        ({"apiKeys": ["a", ["b"], 7]}, {"apiKeys": [REMOVED, [REMOVED], REMOVED]}),
        ({"note": '{"apiKeys": ["a"], "pin": {"password": 1}}'}, {"note": json.dumps({"apiKeys": [REMOVED], "pin": {"password": REMOVED}})}),
        ({"env": [{"name": "API_KEYS", "value": ["a"]}]}, {"env": [{"name": "API_KEYS", "value": [REMOVED]}]}),
        ({"args": ["sh", "-c", "x --password 'a b'"]}, {"args": ["sh", "-c", f"x --password '{REMOVED}'"]}),
        ({"args": ["curl", "-u", "bob:a", "-u", "1000:1000"]}, {"args": ["curl", "-u", f"bob:{REMOVED}", "-u", "1000:1000"]}),
    ],
)  # fmt: skip
def test_numbers_lists_and_arguments_of_a_secret_name_are_removed(value: dict[str, object], shown: object) -> None:
    assert redaction.resource(value) == shown


@pytest.mark.parametrize(
    "value",
    [
        {"maxTokens": 4096, "tokens": [101, 102], "total_tokens": 123456789, "num_key_value_heads": 8, "keyFile": "/etc/tls/tls.key"},
        {"metadata": {"resourceVersion": "123456789", "generation": 12345678}, "imageID": "a@sha256:9f86d081884c7d659a2f"},
        {"secrets": [{"name": "a"}], "models": {"secrets": ["models-*"]}, "imagePullSecrets": [{"name": "b"}], "rules": [{"resources": ["secrets"]}]},
        {"secret": {"secretName": "tls", "defaultMode": 420, "optional": True}, "automountServiceAccountToken": False},
    ],
)  # fmt: skip
def test_figures_and_names_for_a_diagnosis_stay(value: dict[str, object]) -> None:
    assert redaction.resource(value) == value


@pytest.mark.parametrize(
    "part",
    [
        "password: |\n", "imagePullSecrets: |\n ", r"password: |\n", "password: [", "PWD=[/a ", "token=[1,", "tokens=[1 ", "--password '", '--token "-',
        "'--token', '", "<password>", "<token ", "<token>a", "curl -u ", "-u a:", "-u 'a:", "password=b", "password=b'", "API_KEYS_", "sha256~",
        "AQ.Ab-", "tskey-a", "AT" + "ATT3-", "k8s-aws-v1.", "dt0" + "c01.", "-----BEGIN PGP PRIVATE KEY BLOCK", "\\", "[", " ", "key-data", "bbbb",
    ],
)  # fmt: skip
def test_redaction_time_is_linear_in_the_length_of_the_text(part: str) -> None:
    def seconds(size: int) -> float:
        line = part * (size // len(part))
        times = []
        for _ in range(3):
            begin = time.process_time()
            redaction.text(line)
            times.append(time.process_time() - begin)
        return min(times)

    # Ten times the text takes ten times as long; quadratic time would be a hundred times as long.
    assert seconds(40_000) < 30 * max(seconds(4_000), 0.001)


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
    assert SECRET not in json.dumps(redaction.resource({"kind": "Pod", "value": value}))
