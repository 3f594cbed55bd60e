"""Texts of the API server that reject an object at admission, as Kubernetes 1.30 to 1.34 writes them."""

from __future__ import annotations

import pytest

from halcyon.control.objects.admission_messages import exceeds_quota, is_denied_by_policy, lacks_quota_fields

QUOTA = 'pods "m-a-1" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: 5, limited: 5'
UNSET = 'pods "m-a-1" is forbidden: failed quota: team: must specify limits.cpu for: triton; limits.memory for: triton'
WEBHOOK = 'admission webhook "policy.example.com" denied the request: no'
UNEXPLAINED = 'admission webhook "policy.example.com" denied the request without explanation'
POLICY = "modeldeployments \"m\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"
SECURITY = 'pods "quota-a-1" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
RBAC = 'modeldeployments "quota" is forbidden: User "bob" cannot patch resource "modeldeployments" in API group "x"'


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (QUOTA, (True, False, True)),
        (UNSET, (False, True, True)),
        (WEBHOOK, (False, False, True)),
        (UNEXPLAINED, (False, False, True)),
        (POLICY, (False, False, True)),
        (SECURITY, (False, False, False)),
        (RBAC, (False, False, False)),
    ],
)
def test_the_cause_of_a_rejection_is_recognised(message: str, expected: tuple[bool, bool, bool]) -> None:
    assert (exceeds_quota(message), lacks_quota_fields(message), is_denied_by_policy(message)) == expected
