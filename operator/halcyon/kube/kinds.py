"""Kinds of objects that the operator reads or writes, with their URL paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

from halcyon.api.types import API_VERSION, BATCH_KIND, BATCH_PLURAL, KIND, PLURAL

Object = dict[str, Any]
"""Object of the Kubernetes API, as JSON."""


class Key(NamedTuple):
    """Namespace and name of an object; the namespace of a cluster-scoped object is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return the key as a string, in the form `namespace/name`."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True)
class Kind:
    """Kind of object in the Kubernetes API."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection of objects.

        With a name, return the path of this object or of its subresource.
        """
        root = f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"
        parts = [root]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


MODEL_DEPLOYMENT = Kind(API_VERSION, KIND, PLURAL)
BATCH_INFERENCE = Kind(API_VERSION, BATCH_KIND, BATCH_PLURAL)
JOB = Kind("batch/v1", "Job", "jobs")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
CONTROLLER_REVISION = Kind("apps/v1", "ControllerRevision", "controllerrevisions")
SERVICE = Kind("v1", "Service", "services")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
PERSISTENT_VOLUME_CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
POD = Kind("v1", "Pod", "pods")
RESOURCE_QUOTA = Kind("v1", "ResourceQuota", "resourcequotas")
SECRET = Kind("v1", "Secret", "secrets")
ROLE = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
HPA = Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
PDB = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
HTTP_ROUTE = Kind("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes")
GRPC_ROUTE = Kind("gateway.networking.k8s.io/v1", "GRPCRoute", "grpcroutes")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
EVENT = Kind("events.k8s.io/v1", "Event", "events")
API_SERVICE = Kind("apiregistration.k8s.io/v1", "APIService", "apiservices", namespaced=False)
TOKEN_REVIEW = Kind("authentication.k8s.io/v1", "TokenReview", "tokenreviews", namespaced=False)
SUBJECT_ACCESS_REVIEW = Kind("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)
LOCAL_SUBJECT_ACCESS_REVIEW = Kind("authorization.k8s.io/v1", "LocalSubjectAccessReview", "localsubjectaccessreviews")

CHILDREN = (DEPLOYMENT, CONTROLLER_REVISION, SERVICE, CONFIG_MAP, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, HPA, PDB)
"""Kinds that the operator creates in every cluster."""
ROUTES = (HTTP_ROUTE, GRPC_ROUTE)
"""Kinds that the operator creates if the cluster has them."""
WITH_STATUS = frozenset({MODEL_DEPLOYMENT, DEPLOYMENT, SERVICE, HPA, PDB, *ROUTES})
"""Kinds of objects that have a status. A change of the status changes the resource version, although the fields that
the operator writes stay the same."""
OPTIONAL = (NETWORK_POLICY,)
"""Kinds that the operator creates only if the installation enables them. Otherwise the operator has no permission to
read them."""

_BY_NAME = {(k.api_version, k.kind): k for k in (*CHILDREN, *ROUTES, *OPTIONAL)}


def kind_of(obj: dict[str, object]) -> Kind:
    """Return the kind of an object that the operator creates."""
    return _BY_NAME[str(obj["apiVersion"]), str(obj["kind"])]
