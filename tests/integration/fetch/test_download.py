"""`halcyon fetch` from a real S3 store and a real web server, over TLS and without: what comes, what is refused, what a failure says."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import socket
import ssl
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from e2e import s3
from e2e.cluster import binaries
from halcyon.api.documents.model_overlay import Overlay
from halcyon.fetch import download as module
from halcyon.fetch.download import Remote, download
from halcyon.fetch.egress_proxy import Address, SiteProxy
from halcyon.fetch.errors import FetchError, SourceError, StoreError
from halcyon.metricsapi.certificates import renewed
from tests import figures
from tests.ports import free_ports

MIB = 2**20
CONFIG = b'backend: "python"\nmax_batch_size: 8\n'


def anywhere(_: Address) -> bool:
    """These servers are on this machine, where no download may go."""
    return True


def quiet(_: object) -> None:
    pass


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.Store]:
    folder = tmp_path_factory.mktemp("s3")
    (port,) = free_ports(1)
    with s3.running(binaries.extra_program("versitygw"), port, folder) as running:
        running.put("models/vision/digits/config.pbtxt", CONFIG)
        running.put("models/vision/digits/1/model.py", b"code")
        running.put("models/vision/digits/1/weights.bin", bytes(range(256)) * 4096 * 20)  # 20 MiB: three parts
        running.put("models/vision/digits/1/empty", b"")
        running.put("models/vision/digits-2/1/model.py", b"another's")
        yield running


@pytest.fixture
def to(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    """As the kubelet mounts a Secret: links through a hidden folder."""
    return secret(tmp_path, AWS_ACCESS_KEY_ID=s3.ACCESS_KEY, AWS_SECRET_ACCESS_KEY=f"{s3.SECRET_KEY}\n")


def secret(folder: Path, **keys: str) -> Path:
    mount = folder / "credentials"
    (mount / "..1").mkdir(parents=True)
    (mount / "..data").symlink_to("..1")
    for key, value in keys.items():
        name = key.replace("ca_crt", "ca.crt")
        (mount / "..1" / name).write_text(value)
        (mount / name).symlink_to(f"..data/{name}")
    return mount


def files(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def refusal(remote: Remote, to: Path, kind: type[FetchError], allows: Callable[[Address], bool] = anywhere) -> str:
    with pytest.raises(kind) as error:
        download(remote, to, quiet, allows)
    assert s3.SECRET_KEY not in str(error.value)
    return str(error.value)


def test_a_folder_of_a_bucket_comes_whole_and_nothing_beside_it(store: s3.Store, to: Path, credentials: Path) -> None:
    (to / "1").mkdir()
    (to / "1" / "left.bin").write_bytes(b"by an attempt before")
    (to / "link").symlink_to("/etc")
    remote = Remote("s3://models/vision/digits", endpoint=store.url, credentials=credentials)
    size = 20 * MIB + len(CONFIG) + 4
    assert download(remote, to, quiet, anywhere) == size
    assert files(to) == {"config.pbtxt": len(CONFIG), "1/model.py": 4, "1/weights.bin": 20 * MIB, "1/empty": 0}
    assert (to / "1/weights.bin").read_bytes() == bytes(range(256)) * 4096 * 20
    assert not (to / "link").exists()


def test_folders_that_a_console_made_are_folders(store: s3.Store, to: Path, credentials: Path) -> None:
    for folder in ("", "/1", "/2"):
        store.mark(f"models/marked{folder}")
    store.put("models/marked/1/model.py", b"code")
    store.put("models/marked/config.pbtxt", CONFIG)
    store.put("models/marked/labels", b"")
    remote = Remote("s3://models/marked", endpoint=store.url, credentials=credentials)
    assert download(remote, to, quiet, anywhere) == 4 + len(CONFIG)
    assert files(to) == {"config.pbtxt": len(CONFIG), "1/model.py": 4, "labels": 0}
    assert (to / "2").is_dir()


def test_a_larger_model_than_the_limit_is_refused_before_a_byte_comes(
    store: s3.Store, to: Path, credentials: Path
) -> None:
    remote = Remote("s3://models/vision/digits", endpoint=store.url, credentials=credentials, limit_bytes=MIB)
    assert "sizeLimit is 0.0 GiB; raise it" in refusal(remote, to, SourceError)


def test_a_missing_object_is_reported_by_its_url(store: s3.Store, to: Path, credentials: Path) -> None:
    missing = Remote("s3://models/vision/digit", endpoint=store.url, credentials=credentials)
    assert "s3://models/vision/digit is empty; a model's folder contains, for example," in refusal(
        missing, to, SourceError
    )
    bucket = Remote("s3://nobodys/vision", endpoint=store.url, credentials=credentials)
    assert "s3://nobodys/vision" in refusal(bucket, to, FetchError)


def test_the_store_refuses_a_wrong_key_and_the_error_has_no_secret(store: s3.Store, to: Path, tmp_path: Path) -> None:
    url = "s3://models/vision/digits"
    unsigned = refusal(Remote(url, endpoint=store.url), to, StoreError)
    wrong = secret(tmp_path, AWS_ACCESS_KEY_ID=s3.ACCESS_KEY, AWS_SECRET_ACCESS_KEY="wrong-secret-canary")
    signed = refusal(Remote(url, endpoint=store.url, credentials=wrong), to, StoreError)
    for message in (unsigned, signed):
        assert (
            f"{url}: the store denied access; set spec.model.source.credentials.secretName to a Secret with AWS_ACCESS_KEY_ID"
            in message
        )
    assert "wrong-secret-canary" not in signed


def test_a_model_that_changes_meanwhile_is_not_put_together_from_two(
    store: s3.Store, to: Path, credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("models/moving/1/weights.bin", b"a" * 1000)
    remote = Remote("s3://models/moving", endpoint=store.url, credentials=credentials)
    bring = module._download_part

    def after_a_change(*arguments: object) -> int:
        store.put("models/moving/1/weights.bin", b"b" * 1000)
        return bring(*arguments)  # type: ignore[arg-type]  # as they were given

    monkeypatch.setattr(module, "_download_part", after_a_change)
    assert "changed during the download" in refusal(remote, to, StoreError)


def test_an_unreachable_store_and_one_on_this_machine_are_reported(to: Path) -> None:
    (port,) = free_ports(1)
    nobody = Remote("s3://models/a", endpoint=f"http://127.0.0.1:{port}")
    assert f"127.0.0.1:{port} can't be reached" in refusal(nobody, to, StoreError)
    for private in (False, True):
        inside = Remote("s3://models/a", endpoint=f"http://127.0.0.1:{port}", private=private)
        with pytest.raises(StoreError, match="models can't be downloaded from this machine"):
            download(inside, to, quiet)


def test_tls_of_a_private_authority_needs_its_certificate(tmp_path: Path, to: Path) -> None:
    certificates = renewed(None, ("localhost",), datetime.now(UTC))
    (tmp_path / "tls.crt").write_text(certificates.serving.cert_pem)
    (tmp_path / "tls.key").write_text(certificates.serving.key_pem)
    folder = tmp_path / "s3"
    folder.mkdir()
    (port,) = free_ports(1)
    tls = (f"--cert={tmp_path / 'tls.crt'}", f"--key={tmp_path / 'tls.key'}")
    keys = {"AWS_ACCESS_KEY_ID": s3.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": s3.SECRET_KEY}
    with s3.running(binaries.extra_program("versitygw"), port, folder, *tls, scheme="https") as store:
        store.put("models/a/1/model.py", b"code")
        trusting = secret(tmp_path / "trusting", **keys, ca_crt=certificates.bundle_pem)
        remote = Remote("s3://models/a", endpoint=f"https://localhost:{port}", credentials=trusting)
        assert download(remote, to, quiet, anywhere) == 4
        doubting = secret(tmp_path / "doubting", **keys)
        message = refusal(
            Remote("s3://models/a", endpoint=f"https://localhost:{port}", credentials=doubting), to, StoreError
        )
    assert "the server's certificate isn't trusted (UnknownIssuer)" in message
    assert "the key ca.crt of the Secret" in message


@dataclass
class Web:
    """A web server's pages."""

    url: str
    pages: dict[str, bytes]
    requests: list[tuple[str, str]]
    """Path and `authorization` of each request."""
    redirects: dict[str, str]


@contextmanager
def serving(tls: str, folder: Path) -> Iterator[Web]:
    web = Web("", {}, [], {})

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("://")[2].partition("/")[2] if "://" in self.path else self.path.lstrip("/")
            web.requests.append((path, self.headers.get("authorization", "")))
            content = web.pages.get(path, b"")
            self.send_response(302 if path in web.redirects else 200 if path in web.pages else 404)
            if path in web.redirects:
                self.send_header("Location", web.redirects[path])
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Last-Modified", "Sat, 21 Nov 2026 00:00:00 GMT")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.url = f"http://127.0.0.1:{server.server_port}"
    if tls:
        web.url = f"https://localhost:{server.server_port}"
        (folder / "web.pem").write_text(tls)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "web.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def archive(**more: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for name, content in {"digits/config.pbtxt": CONFIG, "digits/1/model.py": b"code", **more}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_an_archive_comes_over_tls_with_the_header_of_the_secret(tmp_path: Path, to: Path) -> None:
    certificates = renewed(None, ("localhost",), datetime.now(UTC))
    keys = secret(tmp_path, authorization="Bearer token-canary\n", ca_crt=certificates.bundle_pem)
    with serving(certificates.serving.cert_pem + certificates.serving.key_pem, tmp_path) as web:
        web.pages["m/digits.tar.gz"] = archive()
        digest = hashlib.sha256(web.pages["m/digits.tar.gz"]).hexdigest()
        remote = Remote(f"{web.url}/m/digits.tar.gz", sha256=digest, credentials=keys)
        assert download(remote, to, quiet, anywhere) == len(CONFIG) + 4
    assert web.requests == [("m/digits.tar.gz", "Bearer token-canary")]
    assert set(files(to)) == {"digits/config.pbtxt", "digits/1/model.py"}


def test_an_archive_of_another_digest_leaves_no_file(tmp_path: Path, to: Path) -> None:
    with serving("", tmp_path) as web:
        web.pages["digits.tgz"] = archive()
        message = refusal(Remote(f"{web.url}/digits.tgz", sha256="0" * 64), to, SourceError)
    assert f"has the SHA-256 {hashlib.sha256(web.pages['digits.tgz']).hexdigest()}" in message
    assert list(to.iterdir()) == []


def test_a_missing_page_is_reported(tmp_path: Path, to: Path) -> None:
    with serving("", tmp_path) as web:
        assert refusal(Remote(f"{web.url}/a.tar"), to, SourceError) == f"{web.url}/a.tar does not exist"


def test_a_redirect_to_another_host_is_not_followed(tmp_path: Path, to: Path) -> None:
    with serving("", tmp_path) as web, serving("", tmp_path) as other:
        other.pages["a.tar"] = archive()
        web.redirects["a.tar"] = f"{other.url}/a.tar"
        message = refusal(Remote(f"{web.url}/a.tar"), to, StoreError)
        web.redirects["b.tar"] = "http://169.254.169.254/latest/meta-data/iam/x.tar"
        metadata = refusal(Remote(f"{web.url}/b.tar"), to, StoreError)
    assert other.requests == []
    assert f"{web.url.removeprefix('http://')} redirects to {other.url.removeprefix('http://')}" in message
    assert "redirects to 169.254.169.254:80" in metadata


def test_the_process_says_in_its_termination_log_why_it_ended(
    store: s3.Store, tmp_path: Path, credentials: Path
) -> None:
    (tmp_path / "overlay.json").write_text(Overlay("m").to_json())
    (tmp_path / "source").mkdir()
    options = [f"--source={tmp_path / 'source'}", f"--overlay={tmp_path / 'overlay.json'}", f"--repository={tmp_path / 'models'}",
             "--url=s3://models/vision/digits", f"--endpoint={store.url}", f"--credentials={credentials}", "--limit-bytes=100000000",
             "--private", f"--termination-log={tmp_path / 'log'}"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "halcyon.fetch.main", *options],
        env={"PYTHONPATH": "operator"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    report = json.loads((tmp_path / "log").read_text())
    assert report["reason"] == "ModelDownloadFailed"
    assert "127.0.0.1" in report["message"]
    assert s3.SECRET_KEY not in done.stdout + done.stderr


def test_how_fast_a_large_file_comes(store: s3.Store, to: Path, credentials: Path) -> None:
    store.put("models/large/1/weights.bin", b"w" * (256 * MIB))
    remote = Remote("s3://models/large", endpoint=store.url, credentials=credentials)
    begun = time.monotonic()
    assert download(remote, to, quiet, anywhere) == 256 * MIB
    figures.record("download_mib_per_s", round(256 / (time.monotonic() - begun), 1))
    assert files(to) == {"1/weights.bin": 256 * MIB}


@pytest.fixture
def site_proxy() -> Iterator[tuple[SiteProxy, list[str]]]:
    """An HTTP proxy, and the request lines that it was sent. It forwards tunnels to this machine, whatever their host."""
    lines: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            lines.append(self.requestline)
            if "denied" in self.path:
                self.send_error(407)
                return
            with socket.create_connection(("127.0.0.1", int(self.path.rpartition(":")[2]))) as server:
                self.send_response(200)
                self.end_headers()
                self.wfile.flush()
                copy = threading.Thread(target=_copy, args=(server, self.connection))
                copy.start()
                _copy(self.connection, server)
                copy.join()

        def do_GET(self) -> None:
            lines.append(self.requestline)
            content = archive()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Last-Modified", "Sat, 21 Nov 2026 00:00:00 GMT")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield SiteProxy(f"http://127.0.0.1:{server.server_port}", (".svc", "direct.invalid", "10.0.0.0/8")), lines
    server.shutdown()
    thread.join()
    server.server_close()


def _copy(reader: socket.socket, writer: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := reader.recv(65536):
            writer.sendall(piece)
        writer.shutdown(socket.SHUT_WR)


def test_a_download_goes_through_the_proxy_of_the_site(
    site_proxy: tuple[SiteProxy, list[str]], tmp_path: Path, to: Path
) -> None:
    proxy, lines = site_proxy
    certificates = renewed(None, ("models.invalid",), datetime.now(UTC))
    (tmp_path / "ca.crt").write_text(certificates.bundle_pem)
    with serving(certificates.serving.cert_pem + certificates.serving.key_pem, tmp_path) as web:
        port = web.url.rpartition(":")[2]
        web.pages["digits.tgz"] = archive()
        url = f"https://models.invalid:{port}/digits.tgz"
        remote = Remote(url, site_proxy=proxy, site_ca=tmp_path / "ca.crt")
        # This machine can't resolve the name, and models are downloaded by the default rules for addresses.
        download(remote, to, quiet)
    assert set(files(to)) == {"digits/config.pbtxt", "digits/1/model.py"}
    assert set(lines) == {f"CONNECT models.invalid:{port} HTTP/1.1"}


def test_plain_http_goes_through_the_proxy_of_the_site(site_proxy: tuple[SiteProxy, list[str]], to: Path) -> None:
    proxy, lines = site_proxy
    download(Remote("http://models.invalid/digits.tgz", site_proxy=proxy), to, quiet)
    assert set(files(to)) == {"digits/config.pbtxt", "digits/1/model.py"}
    assert lines == ["GET http://models.invalid/digits.tgz HTTP/1.1"]


@pytest.mark.parametrize(
    ("url", "message", "requests"),
    [
        ("https://denied.invalid/a.tgz", "the site's proxy http://127.0.0.1:{port} denied the connection: HTTP/1.0 407", 1),
        # Names that this machine can resolve are checked, though the proxy resolves them again.
        ("https://169.254.169.254/a.tgz", "models can't be downloaded from this machine, a cloud's metadata service", 0),
        ("https://localhost/a.tgz", "models can't be downloaded from this machine", 0),
        ("https://direct.invalid/a.tgz", "direct.invalid can't be resolved", 0),
    ],
)  # fmt: skip
def test_a_proxy_opens_no_server_that_is_forbidden(
    site_proxy: tuple[SiteProxy, list[str]], to: Path, url: str, message: str, requests: int
) -> None:
    proxy, lines = site_proxy
    with pytest.raises(StoreError) as error:
        download(Remote(url, site_proxy=proxy), to, quiet)
    assert message.format(port=proxy.url.rpartition(":")[2]) in str(error.value)
    assert bool(lines) is bool(requests)


def test_an_unreachable_proxy_is_reported_as_the_site_s(to: Path) -> None:
    (port,) = free_ports(1)
    with pytest.raises(StoreError, match=f"the site's proxy 127.0.0.1:{port} can't be reached"):
        download(Remote("https://models.invalid/a.tgz", site_proxy=SiteProxy(f"http://127.0.0.1:{port}")), to, quiet)


def test_a_missing_file_of_the_site_s_certificates_is_reported(tmp_path: Path, to: Path) -> None:
    with pytest.raises(StoreError, match=r"downloads\.caConfigMap names must exist in the model's namespace"):
        download(Remote("https://models.invalid/a.tgz", site_ca=tmp_path / "ca.crt"), to, quiet)


def test_the_certificates_of_the_site_are_trusted_beside_those_of_the_secret(tmp_path: Path, to: Path) -> None:
    secret_certificates, site_certificates = (renewed(None, ("localhost",), datetime.now(UTC)) for _ in range(2))
    (tmp_path / "site.crt").write_text(site_certificates.bundle_pem)
    keys = secret(tmp_path, ca_crt=secret_certificates.bundle_pem)
    for pair in (secret_certificates, site_certificates):
        with serving(pair.serving.cert_pem + pair.serving.key_pem, tmp_path) as web:
            web.pages["digits.tgz"] = archive()
            remote = Remote(f"{web.url}/digits.tgz", credentials=keys, site_ca=tmp_path / "site.crt")
            download(remote, to, quiet, anywhere)
    assert set(files(to)) == {"digits/config.pbtxt", "digits/1/model.py"}


def test_a_certificate_of_another_time_names_the_clock(tmp_path: Path, to: Path) -> None:
    certificates = renewed(None, ("localhost",), datetime.now(UTC) + timedelta(hours=4))
    (tmp_path / "site.crt").write_text(certificates.bundle_pem)
    with serving(certificates.serving.cert_pem + certificates.serving.key_pem, tmp_path) as web:
        message = refusal(Remote(f"{web.url}/a.tgz", site_ca=tmp_path / "site.crt"), to, StoreError)
    assert "the server's certificate isn't valid at this time (NotValidYet" in message
    assert "correct the node's clock" in message


def test_a_store_with_another_time_names_the_clock(to: Path, credentials: Path) -> None:
    # faketime isn't at hand, so the store's response is S3's documented one, from a server of this test.
    body = b"<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request time and the server's time is too large.</Message></Error>"

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        remote = Remote("s3://models/m", endpoint=f"http://127.0.0.1:{server.server_port}", credentials=credentials)
        message = refusal(remote, to, StoreError)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert "its clock differs from the one of the pod's node" in message
    assert "credentials.secretName" not in message


def test_a_server_with_an_ipv6_address_alone_is_reached(to: Path) -> None:
    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = archive()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Last-Modified", "Sat, 21 Nov 2026 00:00:00 GMT")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = Server(("::1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        download(Remote(f"http://[::1]:{server.server_port}/digits.tgz"), to, quiet, anywhere)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert set(files(to)) == {"digits/config.pbtxt", "digits/1/model.py"}


@pytest.mark.parametrize("uri", ["s3://models//vision/digits", "s3://models/vision/digits/"])
def test_empty_segments_of_a_path_are_left_out(store: s3.Store, to: Path, credentials: Path, uri: str) -> None:
    download(Remote(uri, endpoint=store.url, credentials=credentials), to, quiet, anywhere)
    assert {"config.pbtxt", "1/model.py"} <= set(files(to))


def test_names_of_any_characters_arrive(store: s3.Store, to: Path, credentials: Path) -> None:
    names = ["a b", "a+b", "ü", "a%41", "a#b", "a?b", "a~b", "a=b&c", "a@b", "it's", "a:b", "a*b", "a|b", "日本"]
    for name in names:
        store.put(f"models/odd/names/{name}.bin", b"x")
    download(Remote("s3://models/odd/names", endpoint=store.url, credentials=credentials), to, quiet, anywhere)
    assert set(files(to)) == {f"{name}.bin" for name in names}


@pytest.mark.parametrize("file", ["config.pbtxt", "1/model.py"])
def test_a_uri_of_a_file_names_the_folder_of_its_model(store: s3.Store, to: Path, credentials: Path, file: str) -> None:
    remote = Remote(f"s3://models/vision/digits/{file}", endpoint=store.url, credentials=credentials)
    message = refusal(remote, to, SourceError)
    assert (
        f"{remote.url} is a file; set the URI to the model's folder, for example s3://models/vision/digits" in message
    )
    assert message.endswith("/digits")


def test_folders_of_a_model_may_have_the_names_of_folders_above(store: s3.Store, to: Path, credentials: Path) -> None:
    store.put("models/model/checkpoints/1/model/model.py", b"code")
    store.put("models/model/checkpoints/1/checkpoints/model.ckpt", b"weights")
    remote = Remote("s3://models/model/checkpoints", endpoint=store.url, credentials=credentials)
    download(remote, to, quiet, anywhere)
    assert set(files(to)) == {"1/model/model.py", "1/checkpoints/model.ckpt"}


def test_the_port_80_of_a_store_is_its_port(tmp_path: Path, to: Path, credentials: Path) -> None:
    try:
        with socket.create_server(("127.0.0.1", 80)):
            pass
    except OSError as error:
        pytest.skip(f"port 80 can't be opened here: {error}")
    (tmp_path / "s3").mkdir()
    with s3.running(binaries.extra_program("versitygw"), 80, tmp_path / "s3") as running:
        running.put("models/m/1/model.py", b"code")
        download(Remote("s3://models/m", endpoint="http://127.0.0.1:80", credentials=credentials), to, quiet, anywhere)
    assert set(files(to)) == {"1/model.py"}


def test_the_memory_of_a_download_does_not_grow_with_its_size(tmp_path: Path, to: Path, credentials: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "s3").mkdir()
    with s3.running(binaries.extra_program("versitygw"), port, tmp_path / "s3") as running:
        running.put("models/m/1/small.bin", b"x")
        with (tmp_path / "s3" / "buckets" / "models" / "m" / "1" / "large.bin").open("wb") as large:
            large.truncate(1024 * MIB)
        remote = f"Remote('s3://models/m', endpoint={running.url!r}, credentials=Path({str(credentials)!r}))"
        code = (
            "import re; from pathlib import Path; from halcyon.fetch.download import Remote, download;"
            f"download({remote}, Path({str(to)!r}), lambda _: None, lambda _: True);"
            # getrusage would include the memory of the process that started this one.
            "print(re.search(r'VmHWM:\\s*(\\d+)', Path('/proc/self/status').read_text())[1])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert files(to)["1/large.bin"] == 1024 * MIB
    # The container has 256 MiB.
    assert int(done.stdout) < 200 * 1024
