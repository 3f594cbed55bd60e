"""Download of a model in a server's pod: which credentials are mounted, which servers are contacted, and which specs are rejected."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from typing import Any

import pytest

from halcyon.api.documents.store_identity import StoreIdentity
from halcyon.api.policy import python_rules
from halcyon.api.policy.downloads import SiteDownloads
from halcyon.api.policy.python_rules import PolicySubject
from halcyon.api.policy.site_policy import SitePolicy
from halcyon.api.spec.model import Source
from halcyon.api.spec.parse import SpecError, parse
from halcyon.control.runtime import option_values
from halcyon.render import download, network_policies
from halcyon.render.revision import site_digest
from tests.unit.render.rendered import SITE

AWS = {"aws": {"roleARN": "arn:aws:iam::123456789012:role/models"}}
AZURE = {
    "azure": {
        "clientID": "0c5cbd4c-55f2-4d0f-9e0f-6a2c6f1d8a11",
        "tenantID": "5a1b1c3e-7a0a-4f0e-8a53-6d3f1a2b3c4d",
    }
}
PROVIDER = "projects/123456789012/locations/global/workloadIdentityPools/halcyon/providers/cluster"
GOOGLE = {"google": {"provider": PROVIDER, "serviceAccount": "models@acme.iam.gserviceaccount.com"}}
AZ = {"endpoint": "https://acme.blob.core.windows.net"}


def source(uri: str, credentials: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"uri": uri, "credentials": credentials, **more}


def spec(source: dict[str, Any]) -> Any:
    return parse("m", {"model": {"name": "m", "source": source}, "runtime": {"serviceAccountName": "models"}})


@pytest.mark.parametrize(
    ("fields", "audience", "servers"),
    [
        (
            source("s3://models/m", {"identity": AWS}, region="eu-central-1"),
            "sts.amazonaws.com",
            ["https://sts.eu-central-1.amazonaws.com"],
        ),
        (
            source("az://models/m", {"identity": AZURE}, **AZ),
            "api://AzureADTokenExchange",
            ["https://login.microsoftonline.com"],
        ),
        (
            source("gs://models/m", {"identity": GOOGLE}),
            f"//iam.googleapis.com/{PROVIDER}",
            ["https://sts.googleapis.com", "https://iamcredentials.googleapis.com"],
        ),
        (
            source("s3://models/m", {"identity": AWS | {"endpoint": "https://sts.storage.svc:9000"}}),
            "sts.amazonaws.com",
            ["https://sts.storage.svc:9000"],
        ),
    ],
)
def test_token_has_the_clouds_audience_and_no_secret(fields: dict[str, Any], audience: str, servers: list[str]) -> None:
    read = spec(fields).model.source
    ((path, volume),) = download.volumes(read).items()
    (projected,) = volume["projected"]["sources"]
    assert projected["serviceAccountToken"] == {"path": "token", "audience": audience, "expirationSeconds": 3600}
    args = download.arguments(read)
    assert f"--token={path}/token" in args
    assert not any(argument.startswith("--credentials") for argument in args)
    (identity,) = (StoreIdentity.from_json(a.removeprefix("--identity=")) for a in args if a.startswith("--identity="))
    assert list(identity.servers(read.region or "us-east-1")) == servers
    ports = {network_policies.download_port(*address) for address in download.servers(args)}
    assert ports == {443} | {9000 for server in servers if server.endswith(":9000")}


def test_secret_beside_an_identity_is_mounted_for_its_ca() -> None:
    read = spec(source("s3://models/m", {"identity": AWS, "secretName": "ca"})).model.source
    assert [volume["name"] for volume in download.volumes(read).values()] == ["credentials", "identity"]


def test_pod_starts_without_its_secret_so_that_the_fetcher_names_it() -> None:
    read = spec(source("s3://models/m", {"secretName": "models-s3"})).model.source
    (volume,) = download.volumes(read).values()
    (waiting,) = download.volumes(read, waits_for_secret=True).values()

    assert volume["secret"] == {"secretName": "models-s3", "optional": True}
    assert "--secret=models-s3" in download.arguments(read)
    assert waiting["secret"] == {"secretName": "models-s3"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            source("s3://models/m", {}),
            "has neither secretName nor identity; set one, for example credentials: {secretName: models-s3}",
        ),
        (source("s3://models/m", {"identity": {}}), "identity needs exactly one of aws, azure, google"),
        (source("s3://models/m", {"identity": AWS | AZURE}), "identity needs exactly one of aws, azure, google"),
        (
            source("gs://models/m", {"identity": AWS}),
            "identity does not match gs://models/m; set aws for s3://, azure for az://",
        ),
        (source("https://h/m.tar", {"identity": AWS}), "identity does not match https://h/m.tar"),
        (
            source("gs://models/m", {"identity": GOOGLE | {"endpoint": "https://sts.storage.svc"}}),
            "has both endpoint and google.serviceAccount",
        ),
        (source("s3://models/m", {"identity": AWS | {"endpoint": "http://sts.storage.svc"}}), "identity.endpoint"),
        (source("s3://models/m", {"identity": {"aws": {"roleARN": "models"}}}), "identity.aws.roleARN"),
    ],
)
def test_invalid_identity_names_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        spec(fields)


def test_site_policy_restricts_token_services_with_the_stores() -> None:
    own = {"identity": AWS | {"endpoint": "https://sts.storage.svc"}}
    subject = PolicySubject(
        spec(source("s3://models/m", own, endpoint="https://minio.storage.svc")), "team", SitePolicy.model_validate({})
    )
    assert python_rules.endpoints(subject, ("https://minio.storage.svc",)) == ["https://sts.storage.svc"]
    assert python_rules.endpoints(subject, ("https://minio.storage.svc", "https://sts.storage.svc")) == []


def test_the_proxy_and_the_certificates_of_the_site_reach_the_fetcher() -> None:
    source = Source.model_validate({"uri": "https://models.example.com/m.tgz"})
    site = SiteDownloads.model_validate(
        {"proxy": "http://proxy.example.com:3128", "noProxy": [".svc", "10.0.0.0/8"], "caConfigMap": "ca-bundle"}
    )
    args = download.arguments(source, site)

    assert {"--proxy=http://proxy.example.com:3128", "--no-proxy=.svc,10.0.0.0/8", "--ca=/halcyon/ca/ca.crt"} <= set(
        args
    )
    ((path, volume),) = download.volumes(source, site).items()
    assert (path, volume["configMap"]["name"], volume["configMap"]["optional"]) == ("/halcyon/ca", "ca-bundle", True)
    # NetworkPolicies open the proxy's port, and that of the server for hosts that are reached without it.
    assert {network_policies.download_port(*address) for address in download.servers(args)} == {3128, 443}
    assert download.volumes(Source.model_validate({"persistentVolumeClaim": {"claimName": "m"}}), site) == {}


def test_a_changed_proxy_is_a_change_of_the_site() -> None:
    changed = replace(SITE, downloads=SiteDownloads(proxy="http://proxy.example.com:3128"))

    assert site_digest(changed) != site_digest(SITE)


@pytest.mark.parametrize(
    "text",
    [
        '{"proxy": "proxy.example.com:3128"}',
        '{"proxy": "http://user:word@proxy:3128"}',
        '{"noProxy": "a"}',
        '{"other": 1}',
    ],
)
def test_settings_for_downloads_that_are_invalid_are_rejected_with_an_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"for example .*http://proxy\.example\.com:3128"):
        option_values.parse_downloads(text)


COMMIT = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c"


@pytest.mark.parametrize(
    ("fields", "port"),
    [
        ({"uri": f"hf://acme/resnet50@{COMMIT}/triton"}, 443),
        ({"uri": f"hf://gpt2@{COMMIT}", "credentials": {"secretName": "hf"}}, 443),
        ({"uri": f"hf://acme/Resnet-50.v1@{COMMIT}", "endpoint": "https://hub.example.com:8443"}, 8443),
        ({"uri": "mlflow://resnet50/3/model", "endpoint": "http://mlflow.mlops.svc:5000"}, 5000),
    ],
)
def test_registries_are_contacted_at_their_port(fields: dict[str, Any], port: int) -> None:
    args = download.arguments(spec(fields).model.source)
    assert f"--url={fields['uri']}" in args
    assert [network_policies.download_port(*address) for address in download.servers(args)] == [port]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"uri": "hf://acme/resnet50"}, "hf://acme/resnet50, which names no commit"),
        ({"uri": "hf://acme/resnet50@main"}, "hf://acme/resnet50@main, which names no commit"),
        ({"uri": f"hf://acme/resnet50@{COMMIT[:7]}/triton"}, "which git ls-remote prints for the repository's URL"),
        ({"uri": f"hf://acme/a/b@{COMMIT}"}, "names no commit"),
        (
            {"uri": "mlflow://resnet50/3"},
            "endpoint is not set; set endpoint to the URL of the storage account or the registry",
        ),
        ({"uri": "mlflow://resnet50/champion", "endpoint": "https://mlflow.example.com"}, "this form is not valid"),
        ({"uri": f"hf://acme/m@{COMMIT}", "region": "eu"}, "region applies only to s3:// URIs"),
        ({"uri": f"hf://acme/m@{COMMIT}", "path": "triton"}, "path or digest, which apply only to archives"),
        ({"uri": f"hf://acme/m@{COMMIT}", "credentials": {"identity": AWS}}, "identity does not match hf://acme/m@"),
    ],
)
def test_invalid_registry_sources_name_the_fix(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        spec(fields)


@pytest.mark.parametrize(
    ("prefix", "is_allowed"),
    [
        ("hf://acme", True),
        ("hf://acme/resnet50", True),
        (f"hf://acme/resnet50/{COMMIT}", True),
        ("hf://acme/resnet", False),
        ("hf://{namespace}", False),
    ],
)
def test_site_policy_restricts_owners_and_repositories(prefix: str, *, is_allowed: bool) -> None:
    policy = SitePolicy.model_validate({"models": {"urls": [prefix]}})
    uri = f"hf://acme/resnet50@{COMMIT}"
    subject = PolicySubject(spec({"uri": uri}), "team", policy)
    assert python_rules.urls(subject, policy.models.urls or ()) == ([] if is_allowed else [uri])
