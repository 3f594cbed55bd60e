"""Seventy hostile inputs for an operator, as a table: what is attempted, and what must happen.

The rows follow the project's research on failures of other operators, with its order and numbers. If a row is about a
field that this resource doesn't have, the attempt sets it, and the API server must reject the unknown field.
tests/integration/api/test_hostile_specs.py sends all of them to a real API server with a real operator.
tests/unit/control/acceptance/test_hostile_specs.py checks `off` against the plan of a single reconcile.

    admission    expected result
    on           the API server rejects the spec with this text; if only the operator can detect the problem, it must
    not accept the spec
    off          the operator doesn't accept the spec, with this text, and creates nothing
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]

DIGEST = "sha256:" + "a" * 64
POLICY: Document = {
    "images": {"registries": ["registry.example.com/ml"], "pinned": "Tag"},
    "triton": {"refuseBelow": "26.03", "warnBelow": "26.07"},
    "models": {
        "backends": ["onnxruntime", "tensorrt"],
        "secrets": ["models-*"],
        "images": ["registry.example.com/models"],
    },
    "pods": {
        "priorityClasses": ["models"],
        "runtimeClasses": ["nvidia"],
        "nodeSelectors": ["pool=models"],
        "tolerations": ["nvidia.com/gpu", "dedicated=models"],
    },
    "limits": {"replicas": 64, "gpusPerModel": 16, "gpusPerNamespace": 24},
    "traffic": {
        "serviceTypes": ["ClusterIP", "LoadBalancer"],
        "gateways": ["infra/edge"],
        "hostnames": ["*.{namespace}.models.example.com"],
    },
}
"""Site policy that applies to the attempts."""


@dataclass(frozen=True)
class Attempt:
    """One ModelDeployment that must not be accepted."""

    spec: Document
    on: str
    """Text of the API server's rejection; empty if it can't detect the problem and the operator reports `off`."""
    off: str
    """Text of the operator's rejection."""
    name: str = ""
    """Name of the ModelDeployment; empty for any."""
    storable: bool = True
    """True if an API server without the rules stores it. For /scale it needs a number in spec.replicas."""


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    number: int
    tried: str
    attempts: tuple[Attempt, ...] = ()
    deed: str = ""
    """Name of an attempt that needs more than a spec, and so an API server."""
    beside: tuple[str, ...] = ()
    """Further tests of the same attempt: `file::name`."""
    why: str = ""
    """What those tests cover, and why an API server with pods that run nothing isn't sufficient."""


def spec(path: str = "", value: Any = None) -> Document:
    """Return a valid spec with one field set."""
    fields: Document = {
        "model": {
            "source": {"configMap": {"name": "files", "items": [{"key": "config.pbtxt", "path": "config.pbtxt"}]}}
        },
        "runtime": {"gpu": {"count": 0}},
    }
    if path:
        part = fields
        *parents, last = path.split(".")
        for parent in parents:
            part = part.setdefault(parent, {})
        part[last] = copy.deepcopy(value)
    return fields


def unknown(path: str, value: Any) -> Attempt:
    """Return an attempt with a field that doesn't exist."""
    return Attempt(spec(path, value), f'unknown field "spec.{path}"', f"spec.{path} is not a field")


def bad(path: str, value: Any, on: str, off: str = "") -> Attempt:
    """Return an attempt with an invalid value of a field. Both rejections must name the field."""
    return Attempt(spec(path, value), on or f"spec.{path}", off or f"spec.{path}")


def both(path: str, value: Any, words: str) -> Attempt:
    """Return an attempt with a value that API server and operator reject with the same text."""
    return Attempt(spec(path, value), words, words)


def named(name: str) -> Attempt:
    """Return an attempt with an invalid name."""
    return Attempt(spec(), "metadata.name", f"metadata.name is '{name}'", name=name)


CLAIM = "model.source"
_MATCH = "in body should match"
_ENV = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
        "CUDA_VISIBLE_DEVICES", "AIP_MODE", "KUBERNETES_SERVICE_HOST")  # fmt: skip
_ARGS = ("--model-control-mode=explicit", "--log-file=/etc/x", "--allow-sagemaker", "--backend-directory", "--repoagent-directory",
         "--cache-directory", "--http-address", "--model-repo")  # fmt: skip


def _claim(claim: str, **more: Any) -> Document:
    return {"persistentVolumeClaim": {"claimName": claim, **more}}


def _url(url: str, **more: Any) -> Attempt:
    return bad(CLAIM, {"uri": url, **more}, _MATCH, f"spec.model.source.{next(iter(more), 'uri')} is")


def _deep(levels: int) -> Document:
    nested: Document = {}
    for _ in range(levels):
        nested = {"a": nested}
    return nested


def _gateway(**fields: Any) -> Document:
    return {"name": "edge", "namespace": "infra", **fields}


_ANOTHER_SHAPE: tuple[tuple[str, Any], ...] = (
    ("model", "s3://models/a"), ("model", ["a"]), (CLAIM, "s3://models/a"), (f"{CLAIM}.configMap", "files"), (f"{CLAIM}.configMap", 1),
    (f"{CLAIM}.configMap.name", ["files"]), (f"{CLAIM}.configMap.items", "config.pbtxt"), (f"{CLAIM}.configMap.items", ["config.pbtxt"]),
    ("runtime", []), ("runtime.gpu", 1), ("runtime.gpu.count", "one"), ("runtime.env", {"A": "b"}), ("scaling", "x"), ("scaling", True),
    ("scaling.maxReplicas", {}), ("batching", 8), ("traffic", ["HAProxy"]), ("rollout", "Canary"),
)  # fmt: skip
"""Values that another version of the schema could have stored there."""


ROWS: tuple[Row, ...] = (
    Row(1, "the node's network and processes", (
        unknown("podTemplate", {"spec": {"hostNetwork": True, "hostPID": True, "hostIPC": True}}),
        unknown("runtime.hostNetwork", True),
    )),
    Row(2, "privileges", (
        unknown("runtime.securityContext", {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}, "procMount": "Unmasked"}),
    )),
    Row(3, "the node's files", (
        unknown("runtime.volumes", [{"name": "root", "hostPath": {"path": "/"}}]),
        unknown(f"{CLAIM}.hostPath", {"path": "/var/run/docker.sock"}),
    )),
    Row(4, "root", (unknown("runtime.runAsUser", 0), unknown("runtime.runAsNonRoot", False))),
    Row(5, "somebody's service account", (
        Attempt(spec("runtime.serviceAccountName", "cluster-admin-sa"), "", "spec.runtime.serviceAccountName is cluster-admin-sa, which this site does not allow"), unknown("serviceAccountName", "cluster-admin-sa"),
    )),
    Row(6, "a Secret of another namespace", (
        bad("runtime.env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "x", "key": "k", "namespace": "kube-system"}}}],
            'unknown field "spec.runtime.env[0].valueFrom.secretKeyRef.namespace"', "spec.runtime.env[0].valueFrom.secretKeyRef.namespace is not a field"),
        bad("runtime.env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "kube-system/x", "key": "k"}}}], _MATCH,
            "spec.runtime.env[0].valueFrom.secretKeyRef.name is"),
        bad("traffic.tls", {"secretName": "kube-system/x"}, _MATCH, "spec.traffic.tls.secretName is"),
    )),
    Row(7, "the operator's own key", (
        both("runtime.env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "halcyon-tls", "key": "tls.key"}}}], "refers to the Secrets halcyon-tls"),
        both("traffic.tls", {"secretName": "halcyon-tls"}, "refers to the Secrets halcyon-tls"),
    ), deed="own_key"),
    Row(8, "a claim of another namespace", (
        bad(CLAIM, _claim("../x"), _MATCH, "persistentVolumeClaim.claimName is"),
        bad(CLAIM, _claim("other/x"), _MATCH, "persistentVolumeClaim.claimName is"),
        bad(CLAIM, _claim("x", namespace="other"), "unknown field", "persistentVolumeClaim.namespace is not a field"),
    )),
    Row(9, "names that are too long for what they become", (named("x" * 53), named("x" * 64), named("x" * 253))),
    Row(10, "names with dots", (named("a.b"),)),
    Row(11, "PromQL in a model's name", (bad("model.name", 'x"} or vector(1) or nv_inference_count{model="', _MATCH),)),
    Row(12, "lines and control characters in a model's name", tuple(
        bad("model.name", f"a{character}b", _MATCH) for character in ("\n", "\r", "\t", "\0", "\u2028")
    )),
    Row(13, "letters that look like others in a model's name", tuple(
        bad("model.name", name, _MATCH) for name in ("digits\u202e", "d\u0456gits", "dig\u200bits")
    )),
    Row(14, "paths in a model's name", (*tuple(bad("model.name", name, _MATCH) for name in ("..", "a/../../etc", "-digits", "/etc")), bad(CLAIM, _claim("x", path="../../etc"), _MATCH, "persistentVolumeClaim.path is"))),
    Row(15, "versions that are none", tuple(
        bad("model.versions", {"specific": [version]}, "spec.model.versions.specific") for version in (-1, 0, 999999999999, "01")
    )),
    Row(16, "a file of the node as a model", (_url("file:///etc/shadow"), _url("s3:///etc/shadow"), _url("gs:///etc/shadow"))),
    Row(17, "addresses of the cluster's inside as a model", (
        *(
            _url(url)
            for url in ("https://169.254.169.254/latest/meta-data", "http://[::1]:6443", "http://2130706433", "https://rebind.example", "http://[::ffff:a9fe:a9fe]/a.tar")
        ),
        both(CLAIM, {"uri": "http://10.0.0.1/a.tar"}, "a download over http:// can be modified in transit"),
        _url("s3://models/a", endpoint="http://[::1]:6443"),
    ), beside=(
        "tests/unit/fetch/test_allowed_addresses.py::test_forbidden_download_addresses_are_refused",
        "tests/integration/fetch/test_egress_proxy.py::test_a_name_that_leads_inside_is_refused_when_it_is_connected_to",
        "tests/integration/fetch/test_download.py::test_a_redirect_to_another_host_is_not_followed",
    ), why="a name says nothing of its address: the download looks at what it connects to"),
    Row(18, "a password in an address", (_url("https://user:pass@host/x.tar"), _url("s3://key:secret@models/a"), _url("az://models/a?sig=0"), both(CLAIM, {"uri": "az://models/a"}, "endpoint is not set; set endpoint to the URL of the storage account"), _url("https://host/x.tar?X-Amz-Signature=0"), _url("s3://models/a", endpoint="https://user:pass@host"))),
    Row(19, "commands in an address or a path", (_url("s3://bucket/$(reboot)"), _url("https://host/`id`.tar"), _url("s3://models/a", region="$(id)"), *tuple(bad(CLAIM, _claim("x", path=path), _MATCH, "persistentVolumeClaim.path is") for path in ("$(reboot)", "`id`", "; rm -rf /", "--option")))),
    Row(20, "a way up, encoded twice", (_url("s3://bucket/../other"), _url("https://host/%252e%252e/a.tar"), *tuple(bad(CLAIM, _claim("x", path=path), _MATCH, "persistentVolumeClaim.path is") for path in ("a/../other", "%2e%2e%2f", "a/%252e%252e")))),
    Row(21, "an archive that leads out, or is endless", (unknown(f"{CLAIM}.archive", "https://example.com/bomb.zip"),), beside=(
        "tests/unit/fetch/test_main.py::test_a_link_that_can_not_be_followed_is_refused",
        "tests/unit/fetch/test_main.py::test_a_path_through_a_link_out_of_the_volume_is_refused",
        "tests/unit/fetch/test_archive.py::test_a_name_that_leads_out_is_refused",
        "tests/unit/fetch/test_archive.py::test_links_to_what_is_not_in_the_archive_are_refused",
        "tests/unit/fetch/test_archive.py::test_no_file_is_written_through_a_link",
        "tests/unit/fetch/test_archive.py::test_devices_and_pipes_are_refused",
        "tests/unit/fetch/test_archive.py::test_a_bomb_stops_at_the_limit_before_it_is_written",
    ), why="what a volume or an archive holds is read by a fetcher, in a pod"),
    Row(22, "an image of anybody's", (
        both("runtime.image", "evil.example/triton:26.07", "spec.runtime.image is evil.example/triton:26.07, which this site does not allow"),
        both("runtime.image", "registry.example.com/ml/triton:latest", "this site requires image references by Tag"),
        both("runtime.image", "registry.example.com.evil.io/ml/triton:26.07", "which this site does not allow"),
        both(CLAIM, {"image": {"reference": "evil.example/models/a:1"}}, "spec.model.source.image.reference is evil.example/models/a:1, which this site does not allow"),
        both(CLAIM, {"image": {"reference": "registry.example.com/models-of-others/a:1"}}, "which this site does not allow (allowed registries: registry.example.com/models"),
        both(CLAIM, {"image": {"reference": "registry.example.com/models/a:latest"}}, "this site requires image references by Tag"),
    )),
    Row(23, "an image with known holes", (
        both("runtime.image", "registry.example.com/ml/triton:26.02-py3", "this site requires Triton 26.03 or newer"),
        both("runtime.image", f"registry.example.com/ml/triton:26.07@{DIGEST}", "this site requires Triton 26.03 or newer"),
    )),
    Row(24, "image references that are none", tuple(
        bad("runtime.image", image, "spec.runtime.image")
        for image in ("a b", "Registry/Triton", "a" * 3000, "triton@sha256:" + "a" * 63, "triton@sha256:" + "a" * 64 + "\n")
    ) + tuple(
        bad(CLAIM, {"image": {"reference": image}}, "spec.model.source.image.reference")
        for image in ("https://registry.example.com/a", "../a:1", "a:1 --privileged", "file:///etc")
    )),
    Row(25, "Triton's own arguments", (*tuple(unknown("runtime.args", [argument]) for argument in _ARGS), unknown("runtime.command", ["/bin/sh"]),
        bad("runtime.server.forwardedHeaders", ["x$ --log-file=/etc/x"], _MATCH, "spec.runtime.server.forwardedHeaders"),
        bad("runtime.server.forwardedHeaders", ["a|.*"], _MATCH, "spec.runtime.server.forwardedHeaders"),
        unknown("runtime.server.args", ["--allow-sagemaker=true"]),
    )),
    Row(26, "variables that change what a container is", tuple(
        both("runtime.env", [{"name": name, "value": "x"}], f"spec.runtime.env: {name} is a reserved name") for name in _ENV
    )),
    Row(27, "variables twice, and ten thousand of them", (
        bad("runtime.env", [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], "Duplicate value", "name A is listed more than once"),
        bad("runtime.env", [{"name": f"A{n}", "value": "1"} for n in range(10_000)], "must have at most 64 items"),
    )),
    Row(28, "variables of a whole Secret of others", (
        both("runtime.envFrom", [{"secretRef": {"name": "others"}}], "spec refers to the Secrets others, which this site does not allow"),
        both("runtime.envFrom", [{"configMapRef": {"name": "a"}, "prefix": "LD_"}], "spec.runtime.envFrom: LD_ begins like a reserved name"),
    )),
    Row(29, "a minimum above the maximum", (
        both("scaling", {"minReplicas": 5, "maxReplicas": 2}, "spec.scaling.minReplicas is 5 and must not be above spec.scaling.maxReplicas, which is 2"),
    )),
    Row(30, "more than there is", (
        bad("scaling", {"maxReplicas": 10**9}, "spec.scaling.maxReplicas"),
        both("scaling", {"maxReplicas": 65}, "is 65, but this site allows at most 64"),
        Attempt(spec("scaling", {"maxReplicas": 9}) | {"runtime": {"gpu": {"count": 2}}}, "is 18 GPUs, but this site allows at most 16",
                "is 18 GPUs, but this site allows at most 16"),
    ), deed="gpus_of_a_namespace"),
    Row(31, "zero where nobody wakes it", (
        both("scaling", {"minReplicas": 0, "maxReplicas": 2, "policy": "Rules"}, "spec.scaling.minReplicas is 0 but spec.scaling.policy is Rules"),
    )),
    Row(32, "targets that divide by zero", tuple(
        bad("scaling", {"maxReplicas": 2, "targets": {name: value}}, f"spec.scaling.targets.{name}", f"spec.scaling.targets.{name}")
        for name, value in (("queueDepth", 0), ("queueDepth", -1), ("gpuUtilization", 0), ("gpuUtilization", 101), ("gpuUtilization", -5))
    )),
    Row(33, "numbers that are none", (
        bad("scaling", {"maxReplicas": 1.5}, "spec.scaling.maxReplicas"),
        Attempt(spec("replicas", "NaN"), "spec.replicas", "spec.replicas", storable=False),
        bad("runtime.resources", {"limits": {"memory": "1e1000"}}, _MATCH, "spec.runtime.resources.limits.memory"),
        bad("runtime.resources", {"limits": {"memory": "0.1m"}}, "spec.runtime.sharedMemory is 256Mi"),
    ), deed="numbers_that_json_has_not"),
    Row(34, "durations that are none", tuple(
        bad("traffic.drainTimeout", text, "spec.traffic.drainTimeout") for text in ("-5s", "0s", "999999h", "99999999999h", "5 minutes", "")
    )),
    Row(35, "batches that can't be", (
        both("batching", {"maxBatchSize": 8, "preferredBatchSizes": [64]}, "has a size above spec.batching.maxBatchSize, which is 8"),
        bad("batching", {"preferredBatchSizes": [8, 8]}, "Duplicate value", "spec.batching.preferredBatchSizes"),
        bad("batching", {"preferredBatchSizes": list(range(1, 10_001))}, "must have at most 16 items", "spec.batching.preferredBatchSizes"),
    )),
    Row(36, "batching without a batch", (bad("batching", {"maxBatchSize": 0}, "spec.batching.maxBatchSize"),)),
    Row(37, "a wait in Triton without end", (
        bad("batching", {"maxQueueDelay": "2m"}, "must be between 0us and 1m", "spec.batching.maxQueueDelay"),
        bad("traffic.queueTimeout", "2h", "must be between 10ms and 1h"),
    ), beside=(
        "tests/unit/control/status/test_status.py::test_a_batch_delay_beyond_the_request_timeout_causes_a_warning",
    ), why="a wait that is allowed and longer than requests live is taken with a warning"),
    Row(38, "a GPU's target without a GPU", (
        both("scaling", {"maxReplicas": 2, "targets": {"gpuUtilization": 80}}, "spec.scaling.targets.gpuUtilization is set but the model has no GPU to measure"),
    )),
    Row(39, "parts of GPUs, and several kinds of them", (
        bad("runtime.gpu", {"count": 0.5}, "spec.runtime.gpu.count"),
        unknown("runtime.gpu.mig", "9g.999gb; x"),
        both("runtime.gpu", {"count": 0, "resourceClaimTemplateName": "x"}, "is x, which needs a count of at least 1 and no resourceName"),
        both("runtime.gpu", {"resourceName": "a.b/c", "resourceClaimTemplateName": "x"}, "is x, which needs a count of at least 1 and no resourceName"),
        both("runtime.gpu", {"resourceName": "kubernetes.io/x"}, "is kubernetes.io/x; the domain kubernetes.io is reserved"),
        bad("runtime.gpu", {"count": 17}, "spec.runtime.gpu.count"),
    )),
    Row(40, "GPUs that are shared, by name", (unknown("runtime.gpu.sharing", "mps"), unknown("runtime.gpu.resource", "nvidia.com/gpu.shared"))),
    Row(41, "labels and annotations that switch something on", (
        Attempt(
            spec("runtime.podAnnotations", {"container.apparmor.security.beta.kubernetes.io/triton": "unconfined"}), "",
            "has container.apparmor.security.beta.kubernetes.io/triton, which this site does not allow",
        ),
        both("runtime.podLabels", {"app.kubernetes.io/managed-by": "me"}, "spec.runtime.podLabels has a key that Halcyon itself sets"),
        both("runtime.podAnnotations", {"serving.halcyon.dev/aborted": "x"}, "spec.runtime.podAnnotations has a key that Halcyon itself sets"),
    ), deed="own_labels"),
    Row(42, "labels that another's Service picks", (
        Attempt(spec("runtime.podLabels", {"app": "victim"}), "", "spec.runtime.podLabels has app, which this site does not allow"),
        unknown("podLabels", {"app": "victim"}),
    )),
    Row(43, "objects that are too large, too deep or of another shape", (
        *(bad(path, value, "") for path, value in _ANOTHER_SHAPE),
        bad("model.parameters", {f"k{n}": "x" * 4096 for n in range(300)}, "must have at most 64 items"),
        bad("model.parameters", {"k": "x" * 1_200_000}, "Too long"),
        # The operator reads only as much of the file as it needs to detect that it isn't valid.
        bad("model.deep", _deep(200), 'unknown field "spec.model.deep"', "nested too deeply"),
    ), deed="annotations_without_end"),
    Row(44, "documents that grow when they are read", deed="yaml_bombs", beside=(
        "tests/unit/cli/lint/test_checks.py::test_aliases_are_gone_through_once",
        "tests/unit/cli/lint/test_checks.py::test_a_text_is_either_read_or_named",
    ), why="files on a user's machine are read by `halcyon lint`, which no API server stands before"),
    Row(45, "another kind of source or GPU under the same name", deed="another_source", beside=(
        "tests/unit/render/test_children.py::test_a_changed_ingredient_of_a_server_pod_is_a_new_revision",
    ), why="of a GPU that is another one: what makes a revision new is the builders' alone"),
    Row(46, "a name that is somebody else's", deed="somebody_s_name", beside=(
        "tests/integration/operator/test_conflicting_objects.py::test_a_conflicting_object_is_left_untouched_and_no_other_is_made",
    ), why="each way to be a stranger, and what becomes of children that are there"),
    Row(47, "an object that claims to be ours", deed="spoofed_owner"),
    Row(48, "finalizers, and a deletion that is raced", deed="finalizers"),
    Row(49, "a status of one's own", deed="own_status"),
    Row(50, "the operator's own annotations, broken", deed="broken_annotations"),
    Row(51, "a host of another tenant's", (
        both("traffic.gateway", _gateway(http={"hostnames": ["other-tenant.example.com"]}), "has the hostnames other-tenant.example.com"),
        both("traffic.gateway", _gateway(http={"hostnames": ["*.example.com"]}), "has the hostnames *.example.com"),
        both("traffic.gateway", _gateway(), "has the hostnames *"),
        both("traffic.gateway", {"name": "edge"}, "/edge, which this site does not allow (allowed: infra/edge"),
        bad("traffic.gateway", _gateway(http={"hostnames": ["*"]}), _MATCH, "spec.traffic.gateway.http.hostnames[0] is"),
    )),
    Row(52, "addresses that are somebody else's", (
        unknown("traffic.service.externalIPs", ["10.0.0.1"]),
        unknown("traffic.service.externalName", "kubernetes.default.svc"),
        bad("traffic.service", {"type": "ExternalName"}, "Unsupported value", "spec.traffic.service.type"),
        both("traffic.service", {"type": "NodePort"}, "spec.traffic.service.type is NodePort, which this site does not allow"),
        bad("traffic.service", {"type": "LoadBalancer", "sourceRanges": ["0.0.0.0/33"]}, _MATCH, "spec.traffic.service.sourceRanges[0] is"),
    )),
    Row(53, "annotations that a cloud obeys", (
        Attempt(spec("traffic.service.annotations", {"example.com/acl": "open"}), "", "has example.com/acl, which this site does not allow"),
    )),
    Row(54, "paths to Triton's other APIs", (
        unknown("traffic.pathPrefix", "/v2/repository"),
        unknown("traffic.rewrite", '"\nbackend x; '),
        unknown("traffic.haproxy", {"snippet": "http-request lua.evil"}),
    ), beside=(
        "tests/unit/balancer/config/test_haproxy_cfg.py::test_a_model_name_that_could_be_syntax_is_refused_with_an_example",
        "tests/unit/balancer/config/test_haproxy_cfg.py::test_text_that_is_not_a_name_never_reaches_the_file",
    ), why="what HAProxy is told is written by the agent, in a pod"),
    Row(55, "certificates of others, or none", (
        bad("traffic.tls", {"secretName": "other/x"}, _MATCH, "spec.traffic.tls.secretName is"),
        bad("traffic.tls", {"secretName": "x", "namespace": "other"}, "unknown field", "spec.traffic.tls.namespace is not a field"),
    ), beside=(
        "tests/integration/balancer/test_tls.py::test_clients_are_rejected_until_the_first_certificate_is_there",
        "tests/integration/balancer/test_tls.py::test_an_expired_certificate_replaces_no_good_one_and_the_expiry_is_reported",
        "tests/unit/balancer/config/test_haproxy_cfg.py::test_a_tls_port_never_takes_plain_text_and_is_closed_without_certificate",
    ), why="a certificate that lacks, or has expired, is read by the agent, in a pod"),
    Row(56, "where metrics are asked, and what", (
        bad("scaling", {"maxReplicas": 2, "serverAddress": "http://evil/"}, "unknown field", "spec.scaling.serverAddress is not a field"),
        bad("scaling", {"maxReplicas": 2, "query": "vector(1)"}, "unknown field", "spec.scaling.query is not a field"),
    )),
    Row(57, "the priority of the system", (
        both("runtime.placement.priorityClassName", "system-node-critical", "priorityClassName is system-node-critical, which this site does not allow (allowed: models"),
    )),
    Row(58, "nodes that aren't for models", (
        bad("runtime.placement.tolerations", [{"operator": "Exists"}], "spec.runtime.placement.tolerations[0].key"),
        both("runtime.placement.tolerations", [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
             "tolerations has node-role.kubernetes.io/control-plane"),
        both("runtime.placement.tolerations", [{"key": "dedicated", "operator": "Exists"}], "tolerations has dedicated"),
        both("runtime.placement.nodeSelector", {"pool": "system"}, "has the node labels pool=system"),
        unknown("runtime.placement.nodeName", "control-plane"),
    )),
    Row(59, "a runtime of another kind", (
        both("runtime.placement.runtimeClassName", "kata-privileged", "runtimeClassName is kata-privileged, which this site does not allow (allowed: nvidia"),
    )),
    Row(60, "shared memory without end", (
        Attempt(spec("runtime", {"gpu": {"count": 0}, "sharedMemory": "1Ti", "resources": {"limits": {"memory": "4Gi"}}}),
                "spec.runtime.sharedMemory is 1Ti", "spec.runtime.sharedMemory is 1Ti"),
        bad("runtime.sharedMemory", "-1", _MATCH, "spec.runtime.sharedMemory"),
        bad("runtime.sharedMemory", "64Mb", _MATCH, "spec.runtime.sharedMemory"),
    )),
    Row(61, "a grace that never ends", (
        unknown("runtime.terminationGracePeriodSeconds", -1),
        bad("traffic.drainTimeout", "2h", "must be between 1s and 1h", "spec.traffic.drainTimeout"),
    )),
    Row(62, "pods that no node can take", deed="no_node"),
    Row(63, "a route that another model has", (
        both("traffic.gateway", _gateway(http={"hostnames": ["a.victim.models.example.com"]}), "has the hostnames a.victim.models.example.com"),
    ), beside=(
        "tests/integration/operator/test_gateway_routes.py::test_the_younger_of_two_conflicting_models_says_so_until_they_differ",
    ), why="two models of names that both may have: nothing is refused, and the younger is told"),
    Row(64, "shares of a canary that don't add up", tuple(
        bad("rollout", {"strategy": "Canary", "canary": {"steps": [{"weight": weight} for weight in weights]}}, words, off)
        for weights, words, off in (
            ((60, 60), "Duplicate value", "weight 60 is listed more than once"),
            ((60, 40), "must increase", "must increase"),
            ((-1,), "should be greater than or equal to 1", "weight is -1"),
            ((1_000_001,), "should be less than or equal to 99", "weight is 1000001"),
        )
    )),
    Row(65, "applying and deleting without pause", deed="without_pause"),
    Row(66, "ten thousand objects", deed="quota"),
    Row(67, "namespaces that nobody watches, or that end", deed="namespace_that_ends", beside=(
        "tests/integration/chart/test_installation.py::test_two_releases_for_different_namespaces_stand_side_by_side",
    ), why="of a namespace that nobody watches: the operator of this table watches all"),
    Row(68, "the longest names there are", deed="longest_names"),
    Row(69, "code of a model's own", (both("model.backend", "python", "spec.model.backend is python, which this site does not allow (allowed: onnxruntime, tensorrt"),), beside=(
        "tests/unit/fetch/test_backend_policy.py::test_a_model_whose_backend_is_not_on_the_list_is_refused",
    ), why="which backend a model's own configuration names is read in the pod"),
    Row(70, "APIs by which one client reads another's memory", (
        unknown("traffic.sharedMemory", True),
        unknown("model.responseCache", {"enable": True}),
    ), beside=(
        "tests/unit/render/test_children.py::test_exploitable_features_are_closed_at_each_server",
    ), why="which APIs Triton has is in the arguments of a pod"),
)  # fmt: skip
