"""Access of a batch runner to buckets and Secrets, and the limits that the site policy sets on that access. Pure.

The access consists of an entry in the recipe, volumes with credentials, and the ports of servers. It is rendered in the
same way as the access for a model's download.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from halcyon.api.batch_inference import BatchInferenceSpec, BatchInput, BatchOutput
from halcyon.api.documents.batch_documents import BatchBucket
from halcyon.api.policy.downloads import SiteDownloads
from halcyon.api.policy.python_rules import PolicySubject
from halcyon.api.policy.rules import RULES
from halcyon.api.policy.site_policy import SitePolicy
from halcyon.api.spec import Spec
from halcyon.api.spec.exposure import ApiKeys
from halcyon.api.spec.model import ModelSpec, Source
from halcyon.api.spec.runtime import Runtime
from halcyon.api.spec.traffic import Traffic
from halcyon.kube.kinds import Object
from halcyon.render import download, network_policies

_LIMITS: Final = frozenset(
    {"models.sources", "models.urls", "models.endpoints", "models.secrets", "pods.serviceAccounts"}
)
"""Limits of the site policy on sources and ServiceAccounts of models. They also apply to runners."""
_ANY_CLAIM: Final[Any] = {"persistentVolumeClaim": {"claimName": "unused"}}
"""Placeholder for the source in a spec that is created only to check its other fields."""


@dataclass(frozen=True)
class BucketAccess:
    """Access of a runner to the bucket with its input or its output."""

    place: str
    """Use of the bucket: `input` or `output`."""
    source: Source
    site: SiteDownloads
    private: bool
    """Whether the store that has the bucket may be in a private network."""

    @property
    def _arguments(self) -> dict[str, str]:
        arguments = download.arguments(self.source, self.site)
        return dict(argument.removeprefix("--").partition("=")[::2] for argument in arguments)

    def recipe(self) -> BatchBucket:
        """Return the part of the recipe that describes the bucket to the runner."""
        arguments = self._arguments
        limit = None if self.place == "output" else int(arguments["limit-bytes"])
        paths = {name: self._at(arguments[name]) for name in ("credentials", "token", "ca") if name in arguments}
        texts = {name: arguments[name] for name in ("endpoint", "region", "identity", "proxy") if name in arguments}
        return BatchBucket(
            url=arguments["url"],
            limit_bytes=limit,
            private=self.private,
            no_proxy=arguments.get("no-proxy", ""),
            **paths,
            **texts,
        )

    def volumes(self) -> dict[str, Object]:
        """Return the volumes with credentials and certificates for the bucket, by mount path."""
        # A runner isn't restarted, so its pod waits for the Secret.
        by_path = download.volumes(self.source, self.site, waits_for_secret=True)
        return {self._at(path): volume | {"name": f"{self.place}-{volume['name']}"} for path, volume in by_path.items()}

    def ports(self) -> Iterator[int]:
        """Yield the ports of the servers to which the runner connects for the bucket."""
        for url, endpoint in download.servers([f"--{name}={value}" for name, value in self._arguments.items()]):
            yield network_policies.download_port(url, endpoint)

    def _at(self, path: str) -> str:
        """Return the mount path of a download's volume, changed to a folder for the input or the output."""
        return path.replace("/halcyon/", f"/halcyon/{self.place}/", 1)


def accesses(
    spec: BatchInferenceSpec, namespace: str, site: SiteDownloads, policy: SitePolicy
) -> Mapping[str, BucketAccess]:
    """Return the bucket accesses of a BatchInference. The keys are `input` and `output`.

    An input or an output on a volume has no entry.
    """
    by_place = {}
    for place, section in (("input", spec.input), ("output", spec.output)):
        if section.uri is not None:
            listed = policy.models.urls if section.endpoint is None else policy.models.endpoints
            private = namespace in policy.exempt_namespaces or listed is not None
            by_place[place] = BucketAccess(place, _source(section), site, private)
    return by_place


def refusal(spec: BatchInferenceSpec, namespace: str, policy: SitePolicy, own_secret: str = "") -> str:
    """Return a sentence that describes the violation of the site policy by a BatchInference; empty if there is none.

    `own_secret` is NAMESPACE/NAME of the Secret with the operator's private key, which no runner may mount.
    """
    runtime = Runtime(service_account_name=spec.service_account_name)
    for place, section in (("spec.input", spec.input), ("spec.output", spec.output)):
        secret = section.credentials.secret_name if section.credentials is not None else None
        if secret is not None and f"{namespace}/{secret}" == own_secret:
            return f"{place}.credentials.secretName is {secret}, the Secret with the operator's private key; use another Secret"
        source = _source(section) if section.uri is not None else Source.model_validate(_ANY_CLAIM)
        subject = PolicySubject(Spec(model=ModelSpec(source=source), runtime=runtime), namespace, policy)
        for rule in RULES:
            if rule.value not in _LIMITS or (section.uri is None and rule.value != "pods.serviceAccounts"):
                continue
            if message := rule.violation(subject):
                text = message.replace("spec.model.source", place).replace("spec.runtime.", "spec.")
                return text.replace("source:", f"{place.removeprefix('spec.')}:").replace(
                    "the model there", "the data there"
                )
    return ""


def api_keys_refusal(secret: str, model: str, namespace: str, policy: SitePolicy, own_secret: str = "") -> str:
    """Return a sentence if a runner may not mount the Secret with the API keys of its model; empty if it may.

    The Secret is checked again here, because the operator may not have accepted the spec of the model.
    """
    clause = f"spec.traffic.apiKeys.secretName of {model} is {secret}"
    if f"{namespace}/{secret}" == own_secret:
        return f"{clause}, the Secret with the operator's private key; use another Secret"
    spec = Spec(
        model=ModelSpec(source=Source.model_validate(_ANY_CLAIM)),
        traffic=Traffic(api_keys=ApiKeys(secret_name=secret)),
    )
    rule = next(rule for rule in RULES if rule.value == "models.secrets")
    message = rule.violation(PolicySubject(spec, namespace, policy))
    return message.replace(f"spec refers to the Secrets {secret}", clause)


def _source(section: BatchInput | BatchOutput) -> Source:
    names = ("uri", "credentials", "endpoint", "region", "size_limit")
    return Source(**{name: getattr(section, name, None) for name in names})
