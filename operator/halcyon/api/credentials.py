"""Credentials for buckets, registries and web servers: keys in a Secret, or an identity in a cloud. Names of buckets."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from halcyon.api.types import HOST, DnsName, Documented, Rule, exactly_one

_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
BUCKET = "[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]"
SEGMENT = "[A-Za-z0-9_][A-Za-z0-9_.=+-]*"


class AwsIdentity(Documented):
    """Role in AWS, or in another store with a compatible token service."""

    role_arn: Annotated[str, StringConstraints(pattern=r"^arn:[a-z-]+:iam::[^:]*:role/.+$", max_length=2048),
                        Field(alias="roleARN")]  # fmt: skip
    """ARN of the role that may read the bucket, for example `arn:aws:iam::123456789012:role/models`. Its trust policy
    must accept tokens with the audience `sts.amazonaws.com` from the cluster's issuer."""


class AzureIdentity(Documented):
    """Application or managed identity in Microsoft Entra ID."""

    client_id: Annotated[Annotated[str, StringConstraints(pattern=_UUID, max_length=36)], Field(alias="clientID")]
    """Client id, a UUID. The identity must have a federated credential for the service account, with the audience
    `api://AzureADTokenExchange`."""
    tenant_id: Annotated[Annotated[str, StringConstraints(pattern=_UUID, max_length=36)], Field(alias="tenantID")]
    """Id of the Entra tenant, a UUID."""


class GoogleIdentity(Documented):
    """Workload identity pool of Google Cloud."""

    provider: Annotated[
        str,
        StringConstraints(
            pattern=r"^projects/[0-9]+/locations/[a-z0-9-]+/workloadIdentityPools/[a-z0-9-]+/providers/[a-z0-9-]+$",
            max_length=253,
        ),
    ]
    """Name of the pool's provider for the cluster, for example
    `projects/123456789012/locations/global/workloadIdentityPools/halcyon/providers/cluster`."""
    service_account: (
        Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+@[a-z0-9.-]+\.gserviceaccount\.com$", max_length=253)]
        | None
    ) = None
    """E-mail address of the Google service account to act as, for example `models@acme.iam.gserviceaccount.com`.
    Default: none; the pool's principal itself may read the bucket."""


class Identity(Documented):
    """Identity in a cloud for which the token of the pods' service account is exchanged, so that no Secret is needed.

    Set exactly one of aws, azure and google. The service account is `runtime.serviceAccountName`, or `default`.
    """

    aws: AwsIdentity | None = None
    """Role in AWS or a compatible store, for `s3://`."""
    azure: AzureIdentity | None = None
    """Application or managed identity in Microsoft Entra ID, for `az://`."""
    google: GoogleIdentity | None = None
    """Workload identity pool of Google Cloud for `gs://`."""
    endpoint: Annotated[str, StringConstraints(pattern=rf"^https://{HOST}$", min_length=1, max_length=262)] | None = (
        None
    )
    """URL of the token service, for example `https://sts.storage.svc:9000`. Default: the cloud's own:
    `https://sts.REGION.amazonaws.com`, `https://login.microsoftonline.com` or `https://sts.googleapis.com`. A site that
    lists `sitePolicy.models.endpoints` must list this one, too."""

    rules: ClassVar = (
        exactly_one(
            "aws",
            "azure",
            "google",
            where="spec.model.source.credentials.identity",
            good="identity: {aws: {roleARN: 'arn:aws:iam::123456789012:role/models'}}",
        ),
        Rule(
            cel="!has(self.google) || !has(self.google.serviceAccount) || !has(self.endpoint)",
            check=lambda m: m.google is None or m.google.service_account is None or m.endpoint is None,
            message=(
                "spec.model.source.credentials.identity has both endpoint and google.serviceAccount, but a service account "
                "is only served by Google's own token services; remove one of them"
            ),
        ),
    )


class Credentials(Documented):
    """Credentials for a download: keys in a Secret, or an identity. With both, only `ca.crt` of the Secret is used."""

    secret_name: DnsName | None = None
    """Name of a Secret in the same namespace, which the kubelet mounts only for the download. Default: none. Each of its
    keys is optional: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN` for S3; `GOOGLE_SERVICE_ACCOUNT_KEY`,
    the key file (JSON) of a Google service account; `AZURE_STORAGE_ACCOUNT_KEY` or `AZURE_STORAGE_SAS_TOKEN` for Azure;
    `HF_TOKEN`, an access token of the Hugging Face Hub; `authorization`, the value of the Authorization header for a web
    server or a registry (`Bearer ...`); `ca.crt`, additional CA certificates (PEM) to trust when verifying the server's
    certificate."""
    identity: Identity | None = None
    """Identity in a cloud for which the token of the pods' service account is exchanged, so that no Secret is needed.
    Only for buckets."""

    rules: ClassVar = (
        Rule(
            cel="has(self.secretName) || has(self.identity)",
            check=lambda m: m.secret_name is not None or m.identity is not None,
            message=(
                "spec.model.source.credentials has neither secretName nor identity; set one, for example "
                "credentials: {secretName: models-s3}"
            ),
        ),
    )


IDENTITY_SCHEMES = {"aws": "s3", "azure": "az", "google": "gs"}
"""Scheme of the URIs for which each kind of identity is."""
