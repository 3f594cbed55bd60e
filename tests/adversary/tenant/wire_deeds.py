"""What a hostile tenant does over the wire: to the operator's ports and streams, and in its own namespace of the API server.

`python -m tests.adversary.tenant.wire_deeds NAME SECONDS`, with an `Aim` as JSON on the standard input, does one deed from addresses of
its own. Each is bounded in connections, rate and time. It is a process of its own, so that its work does not delay the clients whose waits
are measured.

With `plain`, the same connections, messages and writes go to a plain server, and to ConfigMaps without a reader, so that the machine and
the API server have the same work.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Final

import aiohttp

from halcyon.api.documents.observation_report import STREAM_PATH
from halcyon.render import names
from tests.integration import crowd
from tests.integration.served_ports import unverified

SOURCES: Final = [f"127.0.8.{last}" for last in range(1, 5)]
OPENED_PER_S: Final = 200
WRITES_PER_S: Final = 40
STREAMS: Final = 8
_GROUP: Final = "/apis/serving.halcyon.dev/v1alpha1"
_METRIC: Final = "/apis/external.metrics.k8s.io/v1beta1/namespaces/{}/desiredreplicas?labelSelector=a%3Db"
_OWNER: Final = names.OWNER_LABEL


@dataclass(frozen=True)
class Aim:
    """What a tenant can reach, and what it has."""

    https: int
    http: int
    namespace: str
    models: list[str]
    tokens: Mapping[str, str]
    """Tokens of the first model's agents, by pod."""
    pods: list[str]
    """Server pods of the first model."""
    api: str
    """URL of the API server."""
    ca: str
    certificate: str
    key: str
    """Files of a client that may edit the namespace."""
    model: Mapping[str, Any]
    """A ModelDeployment without a name."""
    plain: bool = False

    def to_json(self) -> str:
        """Return the text from which `from_json` makes it again."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Aim:
        """Return what `to_json` has written."""
        return Aim(**json.loads(text))


Deed = Callable[[Aim, float], Awaitable[None]]


# ---------------------------------------------------------------------------------------------- ports


async def _open(port: int, number: int, tls: ssl.SSLContext | None) -> asyncio.StreamWriter | None:
    try:
        async with asyncio.timeout(5):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=tls, local_addr=(SOURCES[number % len(SOURCES)], 0)
            )
    except (OSError, TimeoutError):
        return None
    return writer


async def hold(port: int, most: int, says: bytes, until: float, *, tls: bool, then: bytes = b"") -> None:
    """Keep connections that have sent `says`, and open others for those that are closed; each sends `then` once a second."""
    context, held, numbers = unverified() if tls else None, list[asyncio.StreamWriter](), count()
    beat = time.monotonic()
    while time.monotonic() < until:
        held = [w for w in held if not w.is_closing() and not w.transport.is_closing() and not _ended(w)]
        missing = min(most - len(held), OPENED_PER_S // 10)
        opened = await asyncio.gather(*(_open(port, next(numbers), context) for _ in range(missing)))
        for writer in filter(None, opened):
            writer.write(says)
            held.append(writer)
        if then and time.monotonic() > beat + 1:
            beat = time.monotonic()
            for writer in held:
                writer.write(then)
        await asyncio.sleep(0.1)
    for writer in held:
        writer.transport.abort()


def _ended(writer: asyncio.StreamWriter) -> bool:
    reader = getattr(writer.transport.get_protocol(), "_stream_reader", None)
    return reader is not None and reader.at_eof()


async def repeat(
    aim: Aim, path: str, until: float, *, tls: bool, per_s: float, headers: Callable[[int], dict[str, str]]
) -> None:
    """Send requests over a few connections at this rate, whatever the responses are."""
    port, numbers = aim.https if tls else aim.http, count()
    url = f"{'https' if tls else 'http'}://127.0.0.1:{port}{path}"
    connector = aiohttp.TCPConnector(limit=16, ssl=unverified() if tls else True, local_addr=(SOURCES[0], 0))
    async with aiohttp.ClientSession(connector=connector) as session:

        async def request() -> None:
            while time.monotonic() < until:
                with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                    async with session.get(
                        url, headers=headers(next(numbers)), timeout=aiohttp.ClientTimeout(10)
                    ) as answer:
                        await answer.read()
                await asyncio.sleep(16 / per_s)

        await asyncio.gather(*(request() for _ in range(16)))


def _handshakes(aim: Aim, until: float) -> Awaitable[None]:
    async def run() -> None:
        context, numbers = unverified(), count()
        while time.monotonic() < until:
            for writer in filter(
                None, await asyncio.gather(*(_open(aim.https, next(numbers), context) for _ in range(10)))
            ):
                writer.transport.abort()
            await asyncio.sleep(10 / OPENED_PER_S)

    return run()


def _garbage(number: int) -> dict[str, str]:
    return {"Authorization": f"Bearer garbage-{number}"}


def _no_headers(_: int) -> dict[str, str]:
    return {}


_HALF: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Half: "
_PAGE: Final = b"GET /metrics HTTP/1.1\r\nHost: m\r\n\r\n"
_ONCE: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

# ---------------------------------------------------------------------------------------------- streams

Reports = Callable[[Aim, str, int], str]


def report(aim: Aim, agent: str, pods: list[str], *, model: str = "", **changes: Any) -> str:
    """Return a report of an agent on these pods."""
    at = time.time()
    samples = [
        {"name": pod, "state": "ready", "at": at, "pending": 1, "succeeded": n} | changes for n, pod in enumerate(pods)
    ]
    head = {"version": 1, "namespace": aim.namespace, "name": model or aim.models[0], "agent": agent, "at": at}
    return json.dumps(head | {"balancer": None, "pods": samples}, separators=(",", ":"))


async def streams(aim: Aim, until: float, text: Reports, *, per_s: float = 3.0, count_of: int = STREAMS) -> None:
    """Open streams with the tokens of the agents, and again after each end; send reports at this rate on each."""
    agents = list(aim.tokens)
    connector = aiohttp.TCPConnector(limit=0, ssl=unverified(), local_addr=(SOURCES[1], 0))
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send_reports(agent: str) -> None:
            headers = {"Authorization": f"Bearer {aim.tokens[agent]}"}
            while time.monotonic() < until:
                with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                    url = f"https://127.0.0.1:{aim.https}{STREAM_PATH}"
                    async with (
                        asyncio.timeout(max(until - time.monotonic(), 0.1)),
                        session.ws_connect(url, headers=headers) as stream,
                    ):
                        for number in count():
                            if per_s and not stream.closed:
                                await stream.send_str(text(aim, agent, number))
                            with contextlib.suppress(TimeoutError):
                                if (await stream.receive(1 / per_s if per_s else 5)).type is aiohttp.WSMsgType.CLOSE:
                                    break
                            if stream.closed:
                                break
                await asyncio.sleep(0.1)

        await asyncio.gather(*(send_reports(agents[number % len(agents)]) for number in range(count_of)))


def _many(aim: Aim, agent: str, number: int) -> str:
    return report(aim, agent, [f"{agent}-{number}-{pod:04}" for pod in range(2000)])


def _flips(aim: Aim, agent: str, number: int) -> str:
    state = ("ready", "unreachable", "starting", "maintenance")[(number + hash(agent)) % 4]
    return report(aim, agent, aim.pods, state=state)


def _extremes(aim: Aim, agent: str, number: int) -> str:
    value = (10**300, -1, 2**63, 0)[number % 4]
    return report(aim, agent, aim.pods, pending=value, succeeded=value, rows=value, compute_us=value)


def _errors(aim: Aim, agent: str, number: int) -> str:
    return report(aim, agent, aim.pods, load_error=f"{agent} {number} " + "x" * 20_000)


def _load(aim: Aim, agent: str, number: int) -> str:
    document = json.loads(report(aim, agent, aim.pods))
    document["balancer"] = {
        "queued": 10**6 * (number % 2),
        "inflight": 0,
        "requests": 10**7 * number,
        "rejected": 0,
        "errors": 0,
    }
    return json.dumps(document)


def _foreign(aim: Aim, agent: str, _: int) -> str:
    return report(aim, agent, ["m0000-a-0"], model="m0000")


def _nested(_: Aim, __: str, ___: int) -> str:
    return "[" * 500_000


# ---------------------------------------------------------------------------------------------- the API server


class Api:
    """A client of the API server in the tenant's namespace."""

    def __init__(self, aim: Aim, session: aiohttp.ClientSession) -> None:
        """Keep the aim and the session."""
        self._aim, self._session = aim, session

    async def write(self, method: str, path: str, name: str, body: Any = None) -> int:
        """Send a write below the namespace; `path` is such as `/api/v1` and a resource. Errors are not the deed's concern.

        At the plain server, a ConfigMap with the name `plain-NAME` and the same bytes is written in its place.
        """
        prefix, _, resource = path.rpartition("/")
        if self._aim.plain:
            name = f"plain-{resource.partition('?')[0]}-{name}"
            prefix, resource = "/api/v1", "configmaps"
            body = None if body is None else {"metadata": {"name": name}, "data": {"body": json.dumps(body)}}
        elif body is not None and method == "POST":
            body = body | {"metadata": body.get("metadata", {}) | {"name": name}}
        url = f"{self._aim.api}{prefix}/namespaces/{self._aim.namespace}/{resource}"
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with self._session.request(
                method,
                url if method == "POST" else f"{url}/{name}",
                data=None if body is None else json.dumps(body),
                headers={"Content-Type": kind},
            ) as answer:
                await answer.read()
                return answer.status
        return 0


Act = Callable[[Aim, Api, str, int], Awaitable[object]]
_CORE, _APPS, _HPA = "/api/v1", "/apis/apps/v1", "/apis/autoscaling/v2"
_MODELS = f"{_GROUP}/modeldeployments"


async def writes(aim: Aim, until: float, act: Act, *, per_s: float = WRITES_PER_S, lanes: int = 4) -> None:
    """Repeat an action on the tenant's models at this rate."""
    context = ssl.create_default_context(cafile=aim.ca)
    context.load_cert_chain(aim.certificate, aim.key)
    connector = aiohttp.TCPConnector(limit=lanes, ssl=context)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(20)) as session:
        api, numbers = Api(aim, session), count()

        async def lane(own: int) -> None:
            due = time.monotonic()
            while time.monotonic() < until:
                await act(aim, api, aim.models[own % len(aim.models)], next(numbers))
                due = max(due + lanes / per_s, time.monotonic())
                await asyncio.sleep(due - time.monotonic())

        await asyncio.gather(*(lane(own) for own in range(lanes)))


async def _accepted(_: Aim, api: Api, model: str, number: int) -> None:
    edited = json.dumps({"scaling": {"minReplicas": 50, "maxReplicas": 50 + number}})
    await api.write("PATCH", f"{_CORE}/configmaps", f"{model}-balancer", {"data": {"accepted.json": edited}})


async def _plan(_: Aim, api: Api, model: str, number: int) -> None:
    await api.write("PATCH", f"{_CORE}/configmaps", f"{model}-balancer", {"data": {"plan.json": "[" * (number % 9999)}})


async def _children(_: Aim, api: Api, model: str, number: int) -> None:
    kind, name = (
        (f"{_CORE}/services", model),
        (f"{_CORE}/configmaps", f"{model}-balancer"),
        (f"{_CORE}/serviceaccounts", f"{model}-balancer"),
        (f"{_HPA}/horizontalpodautoscalers", model),
    )[number % 4]
    await api.write("DELETE", kind, name)


async def _replaced(_: Aim, api: Api, model: str, number: int) -> None:
    await api.write("DELETE", f"{_CORE}/configmaps", f"{model}-balancer")
    await api.write("POST", f"{_CORE}/configmaps", f"{model}-balancer", {"data": {"theirs": str(number)}})


async def _disowned(_: Aim, api: Api, model: str, __: int) -> None:
    await api.write("PATCH", f"{_CORE}/services", model, {"metadata": {"ownerReferences": None}})


async def _relabelled(_: Aim, api: Api, model: str, number: int) -> None:
    labels = {"metadata": {"labels": {_OWNER: f"none-{number}"}}}
    await api.write("PATCH", f"{_CORE}/services", model, labels)


async def _bounds(_: Aim, api: Api, model: str, number: int) -> None:
    await api.write(
        "PATCH",
        f"{_HPA}/horizontalpodautoscalers",
        model,
        {"spec": {"minReplicas": 20, "maxReplicas": 50 + number % 9}},
    )


async def _replicas(_: Aim, api: Api, model: str, number: int) -> None:
    await api.write("PATCH", _MODELS, model, {"spec": {"replicas": 1 + number % 3}})


async def _recreated(aim: Aim, api: Api, model: str, __: int) -> None:
    await api.write("DELETE", _MODELS, model)
    await api.write("POST", _MODELS, model, dict(aim.model))


async def _flipped(_: Aim, api: Api, model: str, number: int) -> None:
    await api.write("PATCH", _MODELS, model, {"spec": {"traffic": {"queueLimit": 50 + number % 2}}})


async def _annotated(_: Aim, api: Api, model: str, number: int) -> None:
    await api.write("PATCH", _MODELS, model, {"metadata": {"annotations": {"example.com/x": str(number) * 10_000}}})


async def _refused(aim: Aim, api: Api, _: str, number: int) -> None:
    """Create models whose source doesn't exist, and delete the one before the last hundred."""
    source = {"source": {"configMap": {"name": "none", "items": [{"key": "a", "path": "config.pbtxt"}]}}}
    bad = dict(aim.model) | {"spec": dict(aim.model["spec"]) | {"model": source}}
    await api.write("POST", _MODELS, f"x{number}", bad)
    await api.write("DELETE", _MODELS, f"x{number - 100}")


async def _lookalikes(_: Aim, api: Api, model: str, number: int) -> None:
    labels = {_OWNER: model, names.MANAGER_LABEL: names.MANAGER, names.COMPONENT_LABEL: "server"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    await api.write("POST", f"{_CORE}/pods", f"{model}-a-{number}", pod)
    await api.write("DELETE", f"{_CORE}/pods", f"{model}-a-{number - 20}")


async def _config_maps(_: Aim, api: Api, model: str, number: int) -> None:
    labels = {_OWNER: model, names.MANAGER_LABEL: names.MANAGER}
    body = {"metadata": {"labels": labels}, "data": {"plan.json": "x" * 500_000}}
    await api.write("POST", f"{_CORE}/configmaps", f"large-{number}", body)
    await api.write("DELETE", f"{_CORE}/configmaps", f"large-{number - 10}")


async def _files(_: Aim, api: Api, __: str, number: int) -> None:
    """Change the ConfigMap from which all models of the namespace come: each change is a new revision."""
    text = f"max_batch_size: 8 # {number}" + " " * 100_000
    await api.write("PATCH", f"{_CORE}/configmaps", "model", {"data": {"config.pbtxt": text}})


DEEDS: dict[str, Deed] = {
    "silent TLS connections": lambda a, t: hold(a.https, 2000, b"", t, tls=False),
    "idle TLS connections": lambda a, t: hold(a.https, 1000, _ONCE, t, tls=True),
    "half heads over TLS": lambda a, t: hold(a.https, 1000, _HALF, t, tls=True, then=b"x"),
    "handshakes": _handshakes,
    "half heads at the plain port": lambda a, t: hold(a.http, 2000, _HALF, t, tls=False, then=b"x"),
    "scrapes": lambda a, t: repeat(a, "/metrics", t, tls=False, per_s=50, headers=_no_headers),
    "scrapes that are not read": lambda a, t: hold(a.http, 500, _PAGE, t, tls=False),
    "invalid tokens of agents": lambda a, t: repeat(a, STREAM_PATH, t, tls=True, per_s=200, headers=_garbage),
    "invalid tokens at the metrics API": lambda a, t: repeat(
        a, _METRIC.format(a.namespace), t, tls=True, per_s=200, headers=_garbage
    ),
    "wrong paths": lambda a, t: repeat(a, "/none", t, tls=True, per_s=200, headers=_no_headers),
    "reports of 2,000 pods that don't exist": lambda a, t: streams(a, t, _many),
    "reports faster than allowed": lambda a, t: streams(a, t, lambda a, agent, _: report(a, agent, a.pods), per_s=100),
    "reports that contradict each other": lambda a, t: streams(a, t, _flips),
    "reports with extreme numbers": lambda a, t: streams(a, t, _extremes),
    "reports with long errors": lambda a, t: streams(a, t, _errors),
    "reports of a load that jumps": lambda a, t: streams(a, t, _load),
    "reports about another model": lambda a, t: streams(a, t, _foreign),
    "reports that are no JSON": lambda a, t: streams(a, t, _nested),
    "silent streams": lambda a, t: streams(a, t, _foreign, per_s=0, count_of=64),
    "edits of the accepted spec": lambda a, t: writes(a, t, _accepted),
    "edits of the plan": lambda a, t: writes(a, t, _plan),
    "deletions of children": lambda a, t: writes(a, t, _children),
    "objects in the place of children": lambda a, t: writes(a, t, _replaced),
    "children without an owner": lambda a, t: writes(a, t, _disowned),
    "children of another owner": lambda a, t: writes(a, t, _relabelled),
    "bounds of the HPA": lambda a, t: writes(a, t, _bounds),
    "replicas by hand": lambda a, t: writes(a, t, _replicas),
    "models that come and go": lambda a, t: writes(a, t, _recreated, per_s=10),
    "specs that change": lambda a, t: writes(a, t, _flipped, per_s=10),
    "annotations that change": lambda a, t: writes(a, t, _annotated),
    "models without a source": lambda a, t: writes(a, t, _refused, per_s=10),
    "pods that look like servers": lambda a, t: writes(a, t, _lookalikes, per_s=10),
    "large ConfigMaps with the operator's labels": lambda a, t: writes(a, t, _config_maps, per_s=4),
    "revisions of the model's files": lambda a, t: writes(a, t, _files, per_s=4),
}
"""Deeds by name."""


def main(argv: list[str]) -> None:
    """Do one deed."""
    name, seconds = argv
    aim = Aim.from_json(sys.stdin.read())
    with crowd.files(8_000):
        asyncio.run(_done(DEEDS[name], aim, time.monotonic() + float(seconds)))


async def _done(deed: Deed, aim: Aim, until: float) -> None:
    await deed(aim, until)


if __name__ == "__main__":
    main(sys.argv[1:])
