"""Texts with which the API server rejects an object at admission. It gives them no reason code of their own.

Read in Kubernetes 1.30 to 1.34: pkg/quota/v1/evaluator/core/pods.go, and in k8s.io/apiserver, below pkg/admission/plugin:
resourcequota/controller.go, webhook/errors/statuserror.go and policy/validating/dispatcher.go.
"""

from __future__ import annotations

import re

_EXCEEDED_QUOTA = re.compile(r"exceeded quota: ")
_UNSET_QUOTA = re.compile(r"failed quota: .*must specify ")
_DENIED = re.compile(r"denied (?:the )?request")


def exceeds_quota(message: str) -> bool:
    """Return whether a ResourceQuota has too little left for the object."""
    return _EXCEEDED_QUOTA.search(message) is not None


def lacks_quota_fields(message: str) -> bool:
    """Return whether a ResourceQuota demands requests or limits that the object doesn't have."""
    return _UNSET_QUOTA.search(message) is not None


def is_denied_by_policy(message: str) -> bool:
    """Return whether a webhook, an admission policy or a ResourceQuota denies the object, and not a lack of permission."""
    return exceeds_quota(message) or lacks_quota_fields(message) or _DENIED.search(message) is not None
