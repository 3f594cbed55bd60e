"""API of the buckets that a batch reads and writes: fields, credentials, and the rules for them.

The fields have the same names and meanings as those of `spec.model.source` in a ModelDeployment.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import StringConstraints

from halcyon.api.credentials import (
    BUCKET,
    SEGMENT,
    Credentials,
    Identity,
    credentials_rules,
    identity_rules,
    identity_scheme_rule,
)
from halcyon.api.types import DnsName, Rule, exactly_one

BucketUri = Annotated[
    str, StringConstraints(pattern=rf"^(s3|gs|az)://{BUCKET}(/{SEGMENT})*$", min_length=1, max_length=1024)
]
_ONLY_URI = ("credentials", "endpoint", "region")


class BatchIdentity(Identity):
    """Cloud identity with which a runner accesses a bucket, so that no Secret is needed.

    The runner exchanges the token of its ServiceAccount for temporary credentials. The ServiceAccount is
    `spec.serviceAccountName`, or `default`. Set exactly one of aws, azure and google.
    """

    names_path: ClassVar = False
    rules: ClassVar = identity_rules("the field credentials.identity of a BatchInference", role="batches")


class BatchCredentials(Credentials):
    """Credentials for a bucket: keys in a Secret, or a cloud identity.

    If both are set, only the key `ca.crt` of the Secret is used.
    """

    secret_name: DnsName | None = None
    """Name of a Secret with credentials for the bucket, in the same namespace. Only the runner's pod mounts it. Every
    key is optional. S3: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`. Google Cloud:
    `GOOGLE_SERVICE_ACCOUNT_KEY`, the key file (JSON) of a service account. Azure: `AZURE_STORAGE_ACCOUNT_KEY` or
    `AZURE_STORAGE_SAS_TOKEN`. All stores: `ca.crt`, additional CA certificates (PEM) for verifying the server's
    certificate. Default: none."""
    identity: BatchIdentity | None = None
    """Cloud identity for access to the bucket. The runner exchanges the token of its ServiceAccount for temporary
    credentials, so no Secret is needed. Default: none."""

    names_path: ClassVar = False
    rules: ClassVar = credentials_rules("the field credentials of a BatchInference", example="sets-s3")


def bucket_rules(subject: str, example: str) -> tuple[Rule, ...]:
    """Return the validation rules of an object that is either on a volume or in a bucket.

    The object has the fields persistentVolumeClaim, uri, credentials, endpoint and region. `subject` is the name of the
    object in error messages, and `example` is the valid example of a volume in these messages.
    """
    return (
        exactly_one("persistentVolumeClaim", "uri", subject=subject, example=example),
        Rule(
            cel="has(self.uri) || !(" + " || ".join(f"has(self.{name})" for name in _ONLY_URI) + ")",
            check=lambda m: m.uri is not None or (m.credentials, m.endpoint, m.region) == (None,) * len(_ONLY_URI),
            message=f"{subject} has credentials, endpoint or region, which apply only to uri; remove them, or set uri",
        ),
        Rule(
            cel="!has(self.uri) || self.uri.startsWith('s3://') || !has(self.region)",
            check=lambda m: m.uri is None or m.uri.startswith("s3://") or m.region is None,
            message=f"{subject}.region applies only to s3:// URIs, but uri is {{uri}}; remove it",
        ),
        Rule(
            cel="!has(self.uri) || !self.uri.startsWith('az://') || has(self.endpoint)",
            check=lambda m: m.uri is None or not m.uri.startswith("az://") or m.endpoint is not None,
            message=(
                f"{subject}.uri is {{uri}} but endpoint is not set; set endpoint to the URL of the storage account, for "
                "example endpoint: https://ACCOUNT.blob.core.windows.net"
            ),
        ),
        identity_scheme_rule(subject),
    )
