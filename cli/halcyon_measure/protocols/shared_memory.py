"""System shared memory for tensors, between a client and a Triton that use the same /dev/shm, for example in one pod.

One region per process holds the inputs of all payloads, and an output slot for each payload. Requests refer to the
region and contain no tensors. Answers to the same payload share a slot, which is harmless if the model returns the same
values each time. Outputs of unknown size are returned in the answer: strings, and outputs with an open dimension in
addition to the rows.

Out of scope: CUDA shared memory.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tritonclient.utils import triton_to_np_dtype

from halcyon_measure.errors import TargetError, TensorError
from halcyon_measure.inputs.payloads import Payload, batches
from halcyon_measure.inputs.tensors import ModelInput, raw_content
from halcyon_measure.protocols import connect
from halcyon_measure.protocols.reply import Prepared, Reply
from halcyon_measure.protocols.target import Target

_FOLDER = Path("/dev/shm")  # noqa: S108  # the kernel's name for shared memory
_ALIGNMENT = 64
_SAME_PLACE = (
    "client and server must have the same /dev/shm, as in one pod: halcyon bench NAME --trial --shared-memory system"
)


@dataclass(frozen=True)
class Slot:
    """Offset and size of a tensor in a region, in bytes."""

    offset: int
    size: int


@dataclass(frozen=True)
class Slots:
    """Slots of the tensors of one payload, by name."""

    inputs: Mapping[str, Slot]
    outputs: Mapping[str, Slot]


def check(target: Target, *, has_functions: bool) -> None:
    """Check that shared memory can be used for this target. Pure.

    Raises:
        TargetError: the protocol doesn't support shared memory, or two options exclude each other.
    """
    if target.api != "kserve":
        raise TargetError(f"api {target.api} has no shared memory; KServe v2 has, with Triton")
    if target.encoding in {"json", "typed"}:
        raise TargetError(
            f"encoding {target.encoding} puts the values into each request, and shared memory does not; leave one of them out"
        )
    if has_functions:
        raise TargetError(
            "functions of --prepare, --finish and --decode run in other processes, which don't have the client's shared "
            "memory; leave one of them out"
        )


def layout(target: Target, payloads: Sequence[Payload]) -> tuple[list[Slots], int]:
    """Return the slots of each payload, and the size of a region that contains all of them. Pure."""
    kinds = {model_input.name: model_input.datatype for model_input in target.inputs}
    end = 0

    def slot(size: int) -> Slot:
        nonlocal end
        allocated = Slot(end, size)
        end += -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT
        return allocated

    slots = []
    for payload in payloads:
        inputs = {name: slot(len(raw_content(array, kinds[name]))) for name, array in payload.tensors.items()}
        sizes = {
            output.name: output_size(output, payload.rows, has_rows=batches(target.inputs)) for output in target.outputs
        }
        slots.append(Slots(inputs, {name: slot(size) for name, size in sizes.items() if size is not None}))
    return slots, end


def output_size(output: ModelInput, rows: int, *, has_rows: bool) -> int | None:
    """Return the size of an output in bytes; None if the metadata doesn't determine it. Pure."""
    dims = (rows, *output.shape[1:]) if has_rows and output.shape and output.shape[0] == -1 else output.shape
    kind: Any = np.uint16 if output.datatype == "BF16" else triton_to_np_dtype(output.datatype)
    if kind is None or output.datatype == "BYTES" or -1 in dims:
        return None
    return math.prod(dims) * int(np.dtype(kind).itemsize)


class SharedRegion:
    """Shared memory region of one process.

    It is created, filled and registered with the server; `close` undoes this.
    """

    def __init__(self, target: Target, payloads: Sequence[Payload]) -> None:
        """Create the region, fill it with the payloads, and register it with the server.

        Raises:
            TensorError: /dev/shm has no space for the region.
            TargetError: the server has no access to the region, or doesn't respond.
        """
        check(target, has_functions=False)
        self._target, self.name = target, f"halcyon-bench-{uuid.uuid4().hex[:12]}"
        self._kinds = {model_input.name: model_input.datatype for model_input in target.inputs}
        self._slots, self._size = layout(target, payloads)
        self._memory = self._create()
        try:
            for payload, slots in zip(payloads, self._slots, strict=True):
                for name, slot in slots.inputs.items():
                    content = raw_content(payload.tensors[name], self._kinds[name])
                    self._memory[slot.offset : slot.offset + slot.size] = content
            self._register()
        except BaseException:
            self._memory.close()
            raise
        finally:
            # The server has its own mapping by now. Without the file, a killed client leaves nothing behind.
            (_FOLDER / self.name).unlink(missing_ok=True)
        self.requests = [
            self._request(index, payload, slots)
            for index, (payload, slots) in enumerate(zip(payloads, self._slots, strict=True))
        ]
        """Requests for the payloads, which refer to the region."""

    def outputs(self, reply: Reply) -> dict[str, Any]:
        """Return the output tensors of an answer by name, from the region or from the answer itself.

        Raises:
            ValueError, KeyError, TypeError: the answer isn't valid in the protocol.
        """
        if self._target.transport == "grpc":
            return self._grpc_outputs(reply)
        length = len(reply.body) if reply.header_length is None else reply.header_length
        document = json.loads(reply.body[:length])
        slots = self._slots[int(document["id"])].outputs
        arrays = {
            entry["name"]: self._array(slots[entry["name"]], entry["datatype"], entry["shape"])
            for entry in document["outputs"]
            if entry["name"] in slots
        }
        if len(arrays) < len(document["outputs"]):
            # What is left is read from the answer, as if the others had not been asked for.
            others = [entry for entry in document["outputs"] if entry["name"] not in slots]
            head = json.dumps(document | {"outputs": others}).encode()
            remainder = reply._replace(body=head + reply.body[length:], header_length=len(head))
            arrays |= connect.outputs(self._target, remainder)
        return arrays

    def close(self) -> None:
        """Unregister the region from the server, and unmap it in this process."""
        # If the server has ended, it has no region to unregister.
        with contextlib.suppress(TargetError):
            self._call("unregister", {"name": self.name})
        self._memory.close()

    def _create(self) -> mmap.mmap:
        descriptor = os.open(_FOLDER / self.name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            # Without this allocation, a full file system would kill the process at the first write.
            os.posix_fallocate(descriptor, 0, max(self._size, 1))
            return mmap.mmap(descriptor, max(self._size, 1))
        except OSError as error:
            (_FOLDER / self.name).unlink(missing_ok=True)
            raise TensorError(
                f"{_FOLDER} has no room for {self._size / 2**20:.1f} MiB of tensors ({error.strerror}); in a trial pod, "
                "spec.runtime.sharedMemory is its size, for example sharedMemory: 1Gi"
            ) from None
        finally:
            os.close(descriptor)

    def _register(self) -> None:
        self._call(
            "register", {"name": self.name, "key": f"/{self.name}", "offset": 0, "byte_size": max(self._size, 1)}
        )

    def _call(self, action: str, fields: dict[str, Any]) -> None:
        if self._target.transport == "grpc":
            self._call_grpc(action, fields)
            return
        document = {key: value for key, value in fields.items() if key != "name"}
        path = f"/v2/systemsharedmemory/region/{self.name}/{action}"
        status, body = connect.exchange(self._target, "POST", path, document)
        if status >= 400:
            message = " ".join(body[:160].decode(errors="replace").split()) or "no message"
            raise TargetError(f"{self._target.url} refuses shared memory: {status}: {message}; {_SAME_PLACE}")

    def _call_grpc(self, action: str, fields: dict[str, Any]) -> None:
        import grpc  # type: ignore[import-untyped]  # noqa: PLC0415  # grpcio has no types, and takes half a second

        from halcyon_measure.protocols import grpc_client  # noqa: PLC0415

        try:
            grpc_client.call(self._target, f"SystemSharedMemory{action.capitalize()}", **fields)
        except grpc.RpcError as error:
            message = " ".join(str(error.details()).split())
            raise TargetError(
                f"{self._target.url} refuses shared memory: {error.code().name}: {message}; {_SAME_PLACE}"
            ) from None

    def _request(self, index: int, payload: Payload, slots: Slots) -> Prepared:
        if self._target.transport == "grpc":
            return self._grpc_request(index, payload, slots)
        inputs = [
            {
                "name": name,
                "shape": list(array.shape),
                "datatype": self._kinds[name],
                "parameters": self._location(slots.inputs[name]),
            }
            for name, array in payload.tensors.items()
        ]
        outputs = [
            {"name": output.name, "parameters": self._location(slots.outputs[output.name])}
            if output.name in slots.outputs
            else {"name": output.name, "parameters": {"binary_data": True}}
            for output in self._target.outputs
        ]
        # Triton's answers have the `id` of their requests.
        document = {"id": str(index), "inputs": inputs, "outputs": outputs}
        return Prepared(json.dumps(document).encode(), payload.rows)

    def _grpc_request(self, index: int, payload: Payload, slots: Slots) -> Prepared:
        from tritonclient.grpc import service_pb2  # noqa: PLC0415  # grpcio takes half a second

        message = service_pb2.ModelInferRequest(
            model_name=self._target.model, model_version=self._target.version, id=str(index)
        )
        for name, array in payload.tensors.items():
            tensor = message.inputs.add(name=name, datatype=self._kinds[name], shape=array.shape)
            self._mark(tensor, slots.inputs[name])
        for output in self._target.outputs:
            requested = message.outputs.add(name=output.name)
            if output.name in slots.outputs:
                self._mark(requested, slots.outputs[output.name])
        return Prepared(message.SerializeToString(), payload.rows)

    def _mark(self, tensor: Any, slot: Slot) -> None:
        for key, value in self._location(slot).items():
            if isinstance(value, str):
                tensor.parameters[key].string_param = value
            else:
                tensor.parameters[key].int64_param = value

    def _location(self, slot: Slot) -> dict[str, str | int]:
        return {
            "shared_memory_region": self.name,
            "shared_memory_byte_size": slot.size,
            "shared_memory_offset": slot.offset,
        }

    def _grpc_outputs(self, reply: Reply) -> dict[str, Any]:
        from tritonclient.grpc import InferResult, service_pb2  # noqa: PLC0415  # grpcio takes half a second

        response = service_pb2.ModelInferResponse.FromString(reply.body)
        slots = self._slots[int(response.id)].outputs
        arrays = {
            output.name: self._array(slots[output.name], output.datatype, output.shape)
            for output in response.outputs
            if output.name in slots
        }
        if len(arrays) < len(response.outputs):
            # What is left is read from the answer, whose raw contents may have an entry for each output or for these alone.
            if len(response.raw_output_contents) == len(response.outputs):
                indices = [index for index, output in enumerate(response.outputs) if output.name not in slots]
                contents = [response.raw_output_contents[index] for index in indices]
                del response.raw_output_contents[:]
                response.raw_output_contents.extend(contents)
            others = [output for output in response.outputs if output.name not in slots]
            del response.outputs[:]
            response.outputs.extend(others)
            result = InferResult(response)
            arrays |= {output.name: result.as_numpy(output.name) for output in others}
        return arrays

    def _array(self, slot: Slot, datatype: str, shape: Sequence[Any]) -> Any:
        dims = tuple(map(int, shape))
        content = self._memory[slot.offset : slot.offset + slot.size]
        if datatype == "BF16":
            words = np.frombuffer(content, "<u2").astype("<u4") << 16
            return words.view("<f4").reshape(dims)
        kind: Any = triton_to_np_dtype(datatype)
        return np.frombuffer(content, kind).reshape(dims)
