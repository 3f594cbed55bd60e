"""API of credentials for buckets, registries and web servers: keys in a Secret, or a cloud identity.

The module also has the patterns for the names of buckets and for the segments of their paths.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from halcyon.api.types import HOST, ApiModel, DnsName, Rule, exactly_one

_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
BUCKET = "[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]"
SEGMENT = "[A-Za-z0-9_][A-Za-z0-9_.=+-]*"
StoreEndpoint = Annotated[str, StringConstraints(pattern=rf"^https?://{HOST}$", min_length=1, max_length=262)]
StoreRegion = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,64}$", max_length=64)]


IDENTITY_SCHEMES = {"aws": "s3", "azure": "az", "google": "gs"}
"""URI scheme of the buckets to which each kind of identity gives access."""


def identity_rules(subject: str, *, role: str) -> tuple[Rule, ...]:
    """Return the validation rules of a cloud identity.

    `subject` is the name of the identity in error messages, and `role` is the AWS role in their examples.
    """
    return (
        exactly_one(
            "aws",
            "azure",
            "google",
            subject=subject,
            example=f"identity: {{aws: {{roleARN: 'arn:aws:iam::123456789012:role/{role}'}}}}",
        ),
        Rule(
            cel="!has(self.google) || !has(self.google.serviceAccount) || !has(self.endpoint)",
            check=lambda m: m.google is None or m.google.service_account is None or m.endpoint is None,
            message=(
                f"{subject} has both endpoint and google.serviceAccount, but a service account works only with Google's own "
                "token services; remove one of them"
            ),
        ),
    )


def credentials_rules(subject: str, *, example: str) -> tuple[Rule, ...]:
    """Return the validation rules of credentials.

    `subject` is the name of the credentials in error messages, and `example` is the Secret in their examples.
    """
    return (
        Rule(
            cel="has(self.secretName) || has(self.identity)",
            check=lambda m: m.secret_name is not None or m.identity is not None,
            message=(
                f"{subject} has neither secretName nor identity; set one, for example credentials: {{{{secretName: {example}}}}}"
            ),
        ),
    )


def identity_scheme_rule(subject: str) -> Rule:
    """Return the rule that a cloud identity must fit the scheme of the URI. Messages name the object `subject`."""
    return Rule(
        cel=(
            "!has(self.uri) || !has(self.credentials) || !has(self.credentials.identity) || "
            + " || ".join(
                f"(self.uri.startsWith('{scheme}://') && has(self.credentials.identity.{cloud}))"
                for cloud, scheme in IDENTITY_SCHEMES.items()
            )
        ),
        check=lambda m: (
            m.uri is None
            or m.credentials is None
            or m.credentials.identity is None
            or any(
                m.uri.startswith(f"{scheme}://") and getattr(m.credentials.identity, cloud) is not None
                for cloud, scheme in IDENTITY_SCHEMES.items()
            )
        ),
        message=(
            f"{subject}.credentials.identity does not match {{uri}}; set aws for s3://, azure for az:// or google for gs://, or use "
            "secretName"
        ),
    )


class AwsIdentity(ApiModel):
    """AWS role that gives access to a bucket, or role of another store with a compatible token service."""

    role_arn: Annotated[str, StringConstraints(pattern=r"^arn:[a-z-]+:iam::[^:]*:role/.+$", max_length=2048),
                        Field(alias="roleARN")]  # fmt: skip
    """ARN of the role that has access to the bucket, for example `arn:aws:iam::123456789012:role/models`. Its trust
    policy must accept tokens with the audience `sts.amazonaws.com` from the cluster's issuer."""


class AzureIdentity(ApiModel):
    """Entra application or managed identity that gives access to a bucket in Azure Blob Storage."""

    client_id: Annotated[Annotated[str, StringConstraints(pattern=_UUID, max_length=36)], Field(alias="clientID")]
    """Client ID (a UUID) of the Entra application or managed identity. The identity must have a federated credential
    for the pods' service account, with the audience `api://AzureADTokenExchange`."""
    tenant_id: Annotated[Annotated[str, StringConstraints(pattern=_UUID, max_length=36)], Field(alias="tenantID")]
    """ID (a UUID) of the Microsoft Entra tenant."""


class GoogleIdentity(ApiModel):
    """Google workload identity pool that gives access to a bucket in Google Cloud Storage."""

    provider: Annotated[
        str,
        StringConstraints(
            pattern=r"^projects/[0-9]+/locations/[a-z0-9-]+/workloadIdentityPools/[a-z0-9-]+/providers/[a-z0-9-]+$",
            max_length=253,
        ),
    ]
    """Full name of the workload identity provider for this cluster, for example
    `projects/123456789012/locations/global/workloadIdentityPools/halcyon/providers/cluster`."""
    service_account: (
        Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+@[a-z0-9.-]+\.gserviceaccount\.com$", max_length=253)]
        | None
    ) = None
    """E-mail address of the Google service account that the pods impersonate, for example
    `models@acme.iam.gserviceaccount.com`. Default: none; the principal of the workload identity pool itself must have
    access to the bucket."""


class Identity(ApiModel):
    """Cloud identity for a download, so that no Secret is needed. Set exactly one of aws, azure and google.

    Each pod exchanges the token of its service account for temporary credentials. The service account is
    `runtime.serviceAccountName`, or `default`.
    """

    aws: AwsIdentity | None = None
    """Role for access to `s3://` buckets, in AWS or in another store whose token service is compatible with AWS STS."""
    azure: AzureIdentity | None = None
    """Entra application or managed identity for access to `az://` buckets."""
    google: GoogleIdentity | None = None
    """Google workload identity pool for access to `gs://` buckets."""
    endpoint: Annotated[str, StringConstraints(pattern=rf"^https://{HOST}$", min_length=1, max_length=262)] | None = (
        None
    )
    """URL of the token service, for example `https://sts.storage.svc:9000`. If the site sets
    `sitePolicy.models.endpoints`, that list must contain this URL. Default: the token service of the cloud,
    `https://sts.REGION.amazonaws.com`, `https://login.microsoftonline.com` or `https://sts.googleapis.com`."""

    rules: ClassVar = identity_rules("spec.model.source.credentials.identity", role="models")


class Credentials(ApiModel):
    """Credentials for a download: keys in a Secret, or a cloud identity.

    If both are set, only the key `ca.crt` of the Secret is used.
    """

    secret_name: DnsName | None = None
    """Name of a Secret with credentials, in the same namespace. The kubelet mounts the Secret only for the download.
    Every key is optional. S3: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`. Google Cloud:
    `GOOGLE_SERVICE_ACCOUNT_KEY`, the key file (JSON) of a service account. Azure: `AZURE_STORAGE_ACCOUNT_KEY` or
    `AZURE_STORAGE_SAS_TOKEN`. Hugging Face: `HF_TOKEN`, an access token. Web servers and registries: `authorization`,
    the value of the Authorization header, for example `Bearer TOKEN`. All sources: `ca.crt`, additional CA certificates
    (PEM) for verifying the server's certificate. Default: none."""
    identity: Identity | None = None
    """Cloud identity for the download. Each pod exchanges the token of its service account for temporary credentials,
    so no Secret is needed. Only for buckets. Default: none."""

    rules: ClassVar = credentials_rules("spec.model.source.credentials", example="models-s3")
