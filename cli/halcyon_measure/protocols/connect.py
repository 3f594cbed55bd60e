"""Choice of the client for a target, and retrieval of the model's metadata from the server."""

from __future__ import annotations

import json
from dataclasses import replace
from http.client import BadStatusLine, HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote

from halcyon_measure.errors import TargetError
from halcyon_measure.inputs.tensors import ModelInput
from halcyon_measure.protocols.reply import Client, Reply
from halcyon_measure.protocols.target import Target

_TF_KINDS = {
    "DT_FLOAT": "FP32", "DT_DOUBLE": "FP64", "DT_HALF": "FP16", "DT_BFLOAT16": "BF16", "DT_BOOL": "BOOL", "DT_STRING": "BYTES",
    "DT_INT8": "INT8", "DT_INT16": "INT16", "DT_INT32": "INT32", "DT_INT64": "INT64",
    "DT_UINT8": "UINT8", "DT_UINT16": "UINT16", "DT_UINT32": "UINT32", "DT_UINT64": "UINT64",
}  # fmt: skip


def client(target: Target, *, pod_header: str = "") -> Client:
    """Return an open client for the target. It must be created in the event loop that uses it."""
    if target.transport == "grpc":
        from halcyon_measure.protocols.grpc_client import GrpcClient  # noqa: PLC0415  # grpcio takes half a second

        return GrpcClient(target, pod_header=pod_header)
    from halcyon_measure.protocols.http_client import HttpClient  # noqa: PLC0415

    return HttpClient(target, pod_header=pod_header)


def outputs(target: Target, reply: Reply) -> dict[str, Any]:
    """Return the output tensors of an answer by name; empty for a plain POST.

    Raises:
        ValueError, KeyError: the answer isn't valid in the protocol.
    """
    if target.transport == "grpc":
        from halcyon_measure.protocols import grpc_client  # noqa: PLC0415

        return grpc_client.outputs(reply)
    from halcyon_measure.protocols import http_client  # noqa: PLC0415

    return http_client.outputs(target, reply)


def described(target: Target) -> Target:
    """Return the target with the inputs and outputs of its model, from the server's metadata.

    For a plain POST, there are no inputs and outputs.

    Raises:
        TargetError: the server can't be reached, has no such model, or uses another protocol.
    """
    if target.api == "post":
        return target
    if target.transport == "grpc":
        return _by_grpc(target)
    version = f"/versions/{quote(target.version)}" if target.version else ""
    if target.api == "tfserving":
        path = f"/v1/models/{quote(target.model, safe='')}{version}/metadata"
        return replace(target, inputs=_by_tfserving(fetch(target, path), target))
    path = f"/v2/models/{quote(target.model, safe='')}{version}"
    document = fetch(target, path, hint="; for a server without metadata: --api post --input FILE")
    return _by_kserve(document, target)


def _by_kserve(document: Any, target: Target) -> Target:
    try:
        inputs, outputs = (
            tuple(
                ModelInput(str(entry["name"]), str(entry["datatype"]), tuple(int(dim) for dim in entry["shape"]))
                for entry in tensors
            )
            # Servers of Pydantic models, such as MLServer, may write null for an empty list.
            for tensors in (document["inputs"] or (), document.get("outputs") or ())
        )
    except (KeyError, TypeError, ValueError):
        raise TargetError(
            f"{target.url} isn't a server of the KServe v2 protocol: its description of {target.model} is "
            f"{str(document)[:120]}; for another one: --api tfserving, or --api post --input FILE"
        ) from None
    return replace(target, inputs=inputs, outputs=outputs)


def _by_tfserving(document: Any, target: Target) -> tuple[ModelInput, ...]:
    try:
        signatures = document["metadata"]["signature_def"]["signature_def"]
        inputs = signatures["serving_default"]["inputs"]
        return tuple(
            ModelInput(
                name,
                _TF_KINDS[entry["dtype"]],
                tuple(int(dim["size"]) for dim in entry["tensor_shape"].get("dim", ())),
            )
            for name, entry in sorted(inputs.items())
        )
    except (KeyError, TypeError, ValueError):
        raise TargetError(
            f"{target.url} has no signature serving_default for {target.model}: {str(document)[:120]}"
        ) from None


def _by_grpc(target: Target) -> Target:
    import grpc  # type: ignore[import-untyped]  # noqa: PLC0415  # grpcio has no types, and takes half a second

    from halcyon_measure.protocols import grpc_client  # noqa: PLC0415

    try:
        metadata = grpc_client.metadata(target)
    except grpc.RpcError as error:
        raise TargetError(
            f"{target.url} doesn't describe {target.model}: {error.code().name}: {' '.join(str(error.details()).split())}"
        ) from None
    inputs, outputs = (
        tuple(ModelInput(entry.name, entry.datatype, tuple(entry.shape)) for entry in tensors)
        for tensors in (metadata.inputs, metadata.outputs)
    )
    return replace(target, inputs=inputs, outputs=outputs)


def fetch(target: Target, path: str, *, hint: str = "") -> Any:
    """Return the JSON document at a path of the server. `hint` is added to the message about an error status.

    Raises:
        TargetError: the server can't be reached, or doesn't respond with JSON.
    """
    status, body = exchange(target, "GET", path)
    if status >= 400:
        message = " ".join(body[:160].decode(errors="replace").split()) or "no message"
        raise TargetError(
            f"{target.url} doesn't describe {target.model}: {path} responds with {status}: {message}{hint if status == 404 else ''}"
        )
    try:
        return json.loads(body)
    except ValueError:
        raise TargetError(
            f"{target.url} isn't a server of the KServe v2 protocol: {path} responds with "
            f"{body[:60].decode(errors='replace')!r}; for another one: --api tfserving, or --api post --input FILE"
        ) from None


def exchange(target: Target, method: str, path: str, document: Any = None) -> tuple[int, bytes]:
    """Send one HTTP request, with a JSON document if one is given, and return the status and the body of the response.

    Raises:
        TargetError: the server can't be reached.
    """
    content = None if document is None else json.dumps(document).encode()
    try:
        connection = HTTPConnection(target.host, target.port, timeout=target.timeout_s)
        try:
            connection.connect()
            if target.encrypted:
                name = target.tls.server_name or target.host
                connection.sock = target.tls.context().wrap_socket(connection.sock, server_hostname=name)
            connection.request(method, target.path + path, body=content, headers=dict(target.headers))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
    except BadStatusLine as error:
        if isinstance(error, OSError):  # the server closed the connection
            raise TargetError(f"{target.url} can't be measured: {error}") from None
        grpc_url = f"grpc{'s' if target.encrypted else ''}://{target.address}"
        raise TargetError(
            f"{target.url} can't be measured: it doesn't respond as an HTTP server does; if it is a gRPC port: --url {grpc_url}"
        ) from None
    except (OSError, HTTPException) as error:
        reason = "its certificate isn't valid: " if "CERTIFICATE_VERIFY" in str(error) else ""
        example = "; to trust another authority: --ca FILE" if reason else ""
        raise TargetError(
            f"{target.url} can't be measured: {reason}{str(error) or type(error).__name__}{example}"
        ) from None
