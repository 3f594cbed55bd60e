"""What only a process of the command line shows: the packages that a command loads, a pipe that its reader closes, the time of a text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "manifests/examples/digits.yaml"
RECORD = ROOT / "manifests/examples/observations.json"
SQUEEZENET = str(Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_squeezenet.onnx")
UNITS = [
    "token-", "token_", "tokentoken", "key-", "_key", "a_key_b", "pwd.", "webhook_", "x", "a:", "a: ", "a=b", "password", "password ", "password: ",
    'password":"', "password\\", 'token\\"', "token=\\", " ", "\n", "key ", 'key: "', 'key: "a" ', 'key: "token" value ', 'key:"a" value: {string_value:',
    "a://", "http://a:", "http://a:b", "://", "bearer ", "bearer", "basic      ", "eyJ", "-eyJ", "eyJaaaaaaaa.", "eyJaaaaaaaa-", "a.", "a-",
    "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE ", "PRIVATE KEY ", "-----END ", "sk-", "sk-ant-", "hf_", "xoxb-", "AKIA",
    "https://hooks.slack.com/", "&sig=", "?key", "sig=", "sig ", 'sig="', "{", "[", '{"a":', "\\u0026sig=", "é",
    "bot1", "1:AA", "12345678:AA", "AKID", "dp.st.", "dp.st", "a.atlasv1.", ".atlasv1.", "authorization: ", "authorization", "cookie=", "SG.", "SG.a.",
    "1//0", "Q~", "8Q~", "://aaaaaaaaaaaaaaaaaaaaaaaa", "webhook.office.com/", "&x-signature=", "&x-", "&a-a-", "basic a", "basic aaaaaaaaa ", "glpat-", "gl-",
    "npm_", "hvs.", "pscale_a_", "lsv2_pt_", "1", "1.", "true", "token: 1 ", "/token: ", "/",
]  # fmt: skip
"""What a repetition in a pattern could begin, go on or end with."""


def test_lines_are_redacted_without_quadratic_time() -> None:
    code = """if True:
        import json, sys
        from halcyon_cli.diagnose import redaction
        for unit in json.load(sys.stdin):
            print("a line of", repr(unit), flush=True)
            line = (unit * 2**15)[: 2**15]
            redaction.text(line)
            redaction.resource({"a": line})
    """
    # It takes a second. A time that grows so is 5 s for one line, and many of these lines would take as long.
    payload = json.dumps(UNITS)
    done = subprocess.run(
        [sys.executable, "-c", code], input=payload, text=True, capture_output=True, check=True, timeout=25
    )

    assert done.stdout.count("a line of") == len(UNITS)


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m halcyon.main plan -f {DIGITS} --observations {RECORD} | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'cli'}", "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout.startswith("2025-11-21T04:40:00Z  3 replicas")
    assert done.stderr == ""


def test_a_model_file_needs_no_package_that_sends_requests() -> None:
    blocked = "import sys; sys.modules.update(dict.fromkeys(('aiohttp', 'grpc', 'tritonclient', 'PIL', 'kopf')))"
    run = (
        f"{blocked}; import halcyon_measure.variants.make, halcyon_measure.variants.text, halcyon_measure.in_process.alone; "
        f"from halcyon.main import main; sys.exit(main(['analyse', {SQUEEZENET!r}, '--gpu', 'NVIDIA-L4']))"
    )
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "roofline" in done.stdout


def test_a_report_needs_no_package_of_the_load() -> None:
    """The command line without its extras reads results."""
    modules = "halcyon_measure.report.page, halcyon_measure.report.csv_rows, halcyon_measure.report.table_text"
    extras = {"numpy", "aiohttp", "grpc", "PIL", "tritonclient"}
    code = f"import sys, {modules}; print(sorted({extras!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
