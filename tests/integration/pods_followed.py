"""The pods of a namespace, observed by a watch, because polling would miss pods that exist for a tenth of a second."""

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from halcyon.kube import kinds
from tests.integration.operator_space import Object, Space


@dataclass
class Follow:
    """The state observed by the watch."""

    pods: dict[str, Object]
    """Pods by uid."""
    listeners: list[Callable[[], None]] = field(default_factory=list)
    """Functions called after each event, in the watch's thread."""


@contextmanager
def pods_followed(space: Space) -> Iterator[Follow]:
    """Watch the pods, starting with a list, while the context is open."""
    path = kinds.POD.path(space.namespace)
    listed = space.api.call("GET", path).body
    assert listed is not None
    follow = Follow({pod["metadata"]["uid"]: pod for pod in listed["items"]})
    identity = space.api.identity
    address = urlsplit(identity.url)
    context = ssl.create_default_context(cafile=str(identity.ca))
    context.load_cert_chain(identity.certificate, identity.key)
    connection = http.client.HTTPSConnection(address.hostname or "", address.port, context=context)
    connection.request("GET", f"{path}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}")
    stream = connection.getresponse()
    assert stream.status == 200, stream.read()
    held = connection.sock

    def read() -> None:
        while line := stream.readline():
            event = json.loads(line)
            pod = event["object"]
            if event["type"] == "DELETED":
                follow.pods.pop(pod["metadata"]["uid"], None)
            else:
                follow.pods[pod["metadata"]["uid"]] = pod
            for listener in follow.listeners:
                listener()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield follow
    finally:
        held.shutdown(socket.SHUT_RDWR)
        reader.join()
        stream.close()
        connection.close()
