"""The manifest of a Job that runs the command itself."""

from __future__ import annotations

from dataclasses import replace

import kubernetes_validate
import pytest
import yaml

from halcyon_cli.bench.options.inputs import InputOptions
from halcyon_cli.bench.options.load import LoadOptions
from halcyon_cli.bench.options.place import PlaceOptions
from halcyon_cli.bench.options.server import ServerOptions
from halcyon_cli.bench.place.admission import NEEDED
from halcyon_cli.bench.place.bench_request import BenchRequest
from halcyon_cli.bench.place.manifest import RULES, text
from halcyon_cli.bench.place.site import BenchSite
from halcyon_cli.commands.bench import main
from halcyon_cli.errors import InputError

REQUEST = BenchRequest(
    name="digits",
    server=ServerOptions(),
    load=LoadOptions(rate=50.0, duration=30.0),
    inputs=InputOptions(),
    place=PlaceOptions(replicas=2),
)
SITE = BenchSite("r.example.com/halcyon-bench:dev", "halcyon-bench", ("reg",))


def test_manifest_is_valid_and_runs_the_same_measurement() -> None:
    documents = list(yaml.safe_load_all(text(REQUEST, main, SITE, "team")))
    assert [document["kind"] for document in documents] == ["ServiceAccount", "Role", "RoleBinding", "Job"]
    for document in documents:
        kubernetes_validate.validate(document, "1.31", strict=True)
        assert document["metadata"]["namespace"] == "team"
    (container,) = documents[3]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [
        "bench", "digits", "--duration", "30s", "--rate", "50.0", "--replicas", "2",
        "--bench-image", "r.example.com/halcyon-bench:dev", "--priority-class", "halcyon-bench",
    ]  # fmt: skip


def test_manifest_has_the_sites_carbon_intensity() -> None:
    documents = list(yaml.safe_load_all(text(REQUEST, main, replace(SITE, carbon_intensity="380"), "team")))
    assert "--carbon-intensity 380.0" in " ".join(documents[3]["spec"]["template"]["spec"]["containers"][0]["args"])


def test_manifest_of_a_trial_pod_runs_the_same_measurement() -> None:
    trial = replace(REQUEST, server=ServerOptions(shared_memory="system"), place=PlaceOptions(trial=True))
    job = list(yaml.safe_load_all(text(trial, main, SITE, "team")))[3]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["bench", "digits"]
    assert "--trial" in container["args"]
    assert container["args"][container["args"].index("--shared-memory") + 1] == "system"
    (make_config_maps,) = (rule for rule in RULES if "configmaps" in rule["resources"])
    assert "create" in make_config_maps["verbs"]


def test_role_has_every_right_that_a_measurement_needs() -> None:
    for verb, kind, part in NEEDED:
        group = kind.api_version.rpartition("/")[0]
        resource = f"{kind.plural}/{part}" if part else kind.plural
        assert any(
            group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"] for rule in RULES
        ), (verb, resource)


def test_files_of_this_machine_are_refused() -> None:
    local = replace(REQUEST, inputs=InputOptions(inputs=("x.npy",)))
    with pytest.raises(InputError, match=r"x.npy is a file here.*--volume CLAIM"):
        text(local, main, SITE, "team")
    text(replace(REQUEST, inputs=InputOptions(inputs=("pixels=/data/x.npy",))), main, SITE, "team")


@pytest.mark.parametrize(
    "inputs",
    [
        InputOptions(inputs=("/home/me/data/x.npy",)),
        InputOptions(inputs=("pixels=/home/me/data/x.npy",)),
        InputOptions(prepare="/home/me/data/hooks.py:prepare"),
        InputOptions(expect="/home/me/data/y.npz"),
    ],
)
def test_local_file_below_another_folder_named_data_is_refused(inputs: InputOptions) -> None:
    with pytest.raises(InputError, match=r"/home/me/data/\S+ is a file here.*--volume CLAIM"):
        text(replace(REQUEST, inputs=inputs), main, SITE, "team")
