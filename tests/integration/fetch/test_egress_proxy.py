"""Where a download may connect to, and that nothing leads it elsewhere: real sockets on this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from halcyon.fetch.egress_proxy import Address, EgressProxy, is_open


@pytest.fixture
def server() -> Iterator[int]:
    """A server that says back what it is sent, and ends; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"said: " + connection.recv(65536))

    thread = threading.Thread(target=serve)
    thread.start()
    yield int(listener.getsockname()[1])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def anywhere(_: Address) -> bool:
    return True


def proxy_answer(proxy: str, *pieces: bytes) -> bytes:
    """What a client of the proxy gets, that waits for an answer after each piece and then for the end."""
    host, _, port = proxy.removeprefix("http://").partition(":")
    received = b""
    with socket.socket() as connection:  # the name service is a test's own
        connection.settimeout(10)
        connection.connect((host, int(port)))
        for piece in pieces:
            connection.sendall(piece)
            received += connection.recv(65536)
        while more := connection.recv(65536):
            received += more
    return received


def test_a_tunnel_leads_to_the_host_that_was_named(server: int) -> None:
    door = EgressProxy([f"https://127.0.0.1:{server}/a.tar"], anywhere)
    with door.opened() as proxy:
        answer = proxy_answer(proxy, f"CONNECT 127.0.0.1:{server} HTTP/1.1\r\n\r\n".encode(), b"hello")
    assert answer == b"HTTP/1.1 200 OK\r\n\r\nsaid: hello"
    assert door.denied_reason == ""


def test_a_plain_request_reaches_its_server_with_a_path(server: int) -> None:
    request = f"GET http://127.0.0.1:{server}/a.tar?x=1 HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n"
    with EgressProxy([f"http://127.0.0.1:{server}/a.tar"], anywhere).opened() as proxy:
        answer = proxy_answer(proxy, request.encode())
    assert answer == b"said: GET /a.tar?x=1 HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("elsewhere", ["169.254.169.254:80", "127.0.0.1:1", "[::1]:6443", "kubernetes.default.svc:443"])
def test_another_host_or_port_is_refused_by_name(server: int, elsewhere: str) -> None:
    door = EgressProxy([f"https://127.0.0.1:{server}/a.tar"], anywhere)
    with door.opened() as proxy:
        assert b"403 Forbidden" in proxy_answer(proxy, f"CONNECT {elsewhere} HTTP/1.1\r\n\r\n".encode())
        assert b"403 Forbidden" in proxy_answer(proxy, f"GET http://{elsewhere}/ HTTP/1.1\r\n\r\n".encode())
    assert f"127.0.0.1:{server} redirects to " in door.denied_reason


def test_a_name_that_leads_inside_is_refused_when_it_is_connected_to(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts: list[str] = []

    def resolve(host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        hosts.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    door = EgressProxy([f"https://models.example.com:{server}/a.tar"], lambda address: is_open(address, private=True))
    with door.opened() as proxy:
        answer = proxy_answer(proxy, f"CONNECT models.example.com:{server} HTTP/1.1\r\n\r\n".encode())
    assert b"403 Forbidden" in answer
    assert hosts == ["models.example.com"]
    assert "models.example.com is 127.0.0.1, and models can't be downloaded from" in door.denied_reason


def test_an_address_that_does_not_answer_is_reported(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> list[tuple[object, ...]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    door = EgressProxy([f"https://models.example.com:{server}/a.tar"], anywhere)
    with door.opened() as proxy:
        proxy_answer(proxy, f"CONNECT models.example.com:{server} HTTP/1.1\r\n\r\n".encode())
    assert door.denied_reason == "models.example.com can't be resolved: Name or service not known"


@pytest.mark.parametrize(
    "noise", [b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"CONNECT [ HTTP/1.1\r\n\r\n", b"\xff\xff \xff\r\n\r\n"]
)
def test_a_request_that_is_none_for_a_proxy_ends_its_connection_alone(server: int, noise: bytes) -> None:
    with EgressProxy([f"https://127.0.0.1:{server}/a.tar"], anywhere).opened() as proxy:
        assert b"said" not in proxy_answer(proxy, noise)
        assert b"said: x" in proxy_answer(proxy, f"CONNECT 127.0.0.1:{server} HTTP/1.1\r\n\r\n".encode(), b"x")


def test_a_name_that_is_resolved_later_leaves_no_reason(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve, failures = socket.getaddrinfo, ["Temporary failure in name resolution", "Name or service not known"]

    def fails_twice(_: str, *rest: object, **named: object) -> object:
        if failures:
            raise socket.gaierror(socket.EAI_AGAIN, failures.pop(0))
        return resolve("127.0.0.1", *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", fails_twice)
    door = EgressProxy([f"https://model.example:{server}/a.tar"], anywhere)
    request = f"CONNECT model.example:{server} HTTP/1.1\r\n\r\n".encode()
    with door.opened() as proxy:
        for reason in tuple(failures):
            assert b"403 Forbidden" in proxy_answer(proxy, request)
            assert door.denied_reason == f"model.example can't be resolved: {reason}"
        assert b"403 Forbidden" in proxy_answer(proxy, b"CONNECT other.example:443 HTTP/1.1\r\n\r\n")
        assert b"said: hello" in proxy_answer(proxy, request, b"hello")
    assert "redirects to other.example:443" in door.denied_reason
