"""Storage of API objects as compressed JSON, for kinds with many objects per model that are rarely read.

As Python objects, the child objects of a model take ten times as much memory as their JSON. Objects of one kind
resemble each other, so the first one serves as the dictionary of the compression. An object is unpacked at each read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, MutableMapping
from typing import Any

import orjson
from typing_extensions import override

from halcyon.kube.kinds import Key, Object

_SEPARATOR = b"\n"
_RAW = -zlib.MAX_WBITS
"""Format of the compressed data: without a header and a checksum."""
_MAX_DICTIONARY_BYTES = 32 * 1024
"""Maximum size of the dictionary of a compression, in bytes. zlib uses no more than its window."""


class PackedObjects(MutableMapping[Key, Object]):
    """Objects of one kind by key, as compressed JSON. A read returns a new copy, which the caller may keep."""

    def __init__(self) -> None:
        self._texts: dict[Key, bytes] = {}
        """Resource version of each object as JSON, a line break, and the compressed object."""
        self._dictionary = b""

    def version(self, key: Key) -> Any:  # compared only
        """Return the resourceVersion of an object without unpacking it; None if there is no such object."""
        text = self._texts.get(key)
        return None if text is None else orjson.loads(text[: text.index(_SEPARATOR)])

    @staticmethod
    def check(obj: Object) -> None:
        """Raise TypeError if the object can't be packed, for example because it is nested too deeply."""
        orjson.dumps(obj)

    @override
    def __getitem__(self, key: Key) -> Object:
        text = self._texts[key]
        unpacking = zlib.decompressobj(_RAW, self._dictionary)
        obj: Object = orjson.loads(unpacking.decompress(text[text.index(_SEPARATOR) + 1 :]))
        return obj

    @override
    def __setitem__(self, key: Key, obj: Object) -> None:
        """Store an object.

        Raises:
            TypeError: the object can't be packed (`check`).
        """
        text = orjson.dumps(obj)
        if not self._texts:
            self._dictionary = text[:_MAX_DICTIONARY_BYTES]
        packing = zlib.compressobj(wbits=_RAW, zdict=self._dictionary)
        version = orjson.dumps(obj["metadata"]["resourceVersion"])
        self._texts[key] = b"".join((version, _SEPARATOR, packing.compress(text), packing.flush()))

    @override
    def __delitem__(self, key: Key) -> None:
        del self._texts[key]

    @override
    def __iter__(self) -> Iterator[Key]:
        return iter(self._texts)

    @override
    def __len__(self) -> int:
        return len(self._texts)

    @override
    def __contains__(self, key: object) -> bool:
        return key in self._texts
