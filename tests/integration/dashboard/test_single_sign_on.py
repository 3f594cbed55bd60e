"""Single sign-on as docs/guides/dashboard.md describes it: a real oauth2-proxy in front of the dashboard's server.

The identity provider is a stand-in that signs real tokens; access reviews are a table, because the real ones are tested elsewhere.
"""

import asyncio
import base64
import json
import re
import subprocess
import time
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from e2e.cluster import binaries
from e2e.shown_output import Step, console_steps, difference
from halcyon.dashboard.authorization import Authorizer, Proxy
from halcyon.dashboard.history import ChartHistory
from halcyon.dashboard.ports import UNKNOWN, Name
from halcyon.dashboard.server import Dashboard
from halcyon.kube.auth.callers import User
from tests.ports import free_ports
from tests.unit.dashboard.objects import model

pytestmark = pytest.mark.more

PAGE = Path("docs/guides/dashboard.md")
GUIDE = PAGE.read_text()
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def signed(claims: dict[str, object]) -> str:
    """A token of the identity provider."""
    parts = [{"alg": "RS256", "kid": "k", "typ": "JWT"}, claims]
    text = ".".join(encoded(json.dumps(part).encode()) for part in parts)
    return f"{text}.{encoded(KEY.sign(text.encode(), padding.PKCS1v15(), SHA256()))}"


class Provider:
    """An identity provider that signs in Ada at once."""

    def __init__(self, url: str) -> None:
        self.url, self.nonce = url, ""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self.configuration)
        app.router.add_get("/keys", self.keys)
        app.router.add_get("/authorize", self.authorize)
        app.router.add_post("/token", self.token)
        return app

    async def configuration(self, request: web.Request) -> web.Response:
        del request
        ends = {
            f"{name}_endpoint": f"{self.url}/{path}"
            for name, path in (("authorization", "authorize"), ("token", "token"))
        }
        signing = {"jwks_uri": f"{self.url}/keys", "id_token_signing_alg_values_supported": ["RS256"]}
        return web.json_response({"issuer": self.url, **ends, **signing})

    async def keys(self, request: web.Request) -> web.Response:
        del request
        numbers = KEY.public_key().public_numbers()
        n, e = (encoded(value.to_bytes((value.bit_length() + 7) // 8)) for value in (numbers.n, numbers.e))
        return web.json_response({"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "k", "n": n, "e": e}]})

    async def authorize(self, request: web.Request) -> web.Response:
        self.nonce = request.query.get("nonce", "")
        raise web.HTTPFound(f"{request.query['redirect_uri']}?code=c&state={request.query['state']}")

    async def token(self, request: web.Request) -> web.Response:
        del request
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": "halcyon",
            "sub": "7f3a",
            "email": "ada@example.com",
            "email_verified": True,
            "groups": ["staff", "ml-team"],
            "iat": now,
            "exp": now + 600,
            "nonce": self.nonce,
        }
        return web.json_response(
            {"access_token": "a", "token_type": "Bearer", "expires_in": 600, "id_token": signed(claims)}
        )


class Reviews:
    """Access reviews: the group ml-team may see team-a."""

    covers_all = True

    async def user(self, token: str) -> User | None:
        del token
        return None

    async def may_see(self, user: User, *, namespace: str, name: str = "") -> bool:
        del name
        return "ml-team" in user.groups and namespace == "team-a"


class Source:
    """Two models in two namespaces."""

    synced, changes = True, 1

    def __init__(self) -> None:
        self.models = {("team-a", "model-0001"): model(1), ("team-b", "model-0002"): model(2, "team-b")}

    def __getattr__(self, name: str) -> object:
        answers = {
            "names": lambda: [Name(*key) for key in self.models],
            "version": lambda _: "1",
            "model": self.models.get,
            "reading": lambda _: UNKNOWN,
        }
        return answers[name]


def guided() -> Step:
    """The command oauth2-proxy in the guide, and its output there."""
    (step,) = (step for step in console_steps(PAGE) if step.script.startswith("oauth2-proxy"))
    return step


def options() -> list[str]:
    """The options of oauth2-proxy in the guide."""
    return [option.replace('"', "") for option in re.findall(r'--[\w-]+(?:="[^"]*"|=\S+)?', guided().script)]


@pytest.fixture
async def proxied(tmp_path: Path) -> AsyncIterator[str]:
    """The URL of an oauth2-proxy with the guide's options, but for addresses, files and the local connection without TLS."""
    issuer, pages, front = (f"http://127.0.0.1:{port}" for port in free_ports(3))
    for name, content in (("client", "secret"), ("cookie", "0123456789abcdef0123456789abcdef")):
        (tmp_path / name).write_text(content)
    values = next(iter(re.findall(r"userHeader: (X-Forwarded-Email)\n\s+groupsHeader: (\S+)", GUIDE)))
    access = Authorizer(
        Reviews(),
        clock=time.monotonic,
        namespaces=lambda: ["team-a", "team-b"],
        proxy=Proxy([ip_network("127.0.0.1/32")], *values),
    )
    site = Dashboard(Source(), access, ChartHistory(), steps=lambda: 0)
    local = {
        "oidc-issuer-url": issuer,
        "client-secret-file": tmp_path / "client",
        "cookie-secret-file": tmp_path / "cookie",
        "redirect-url": f"{front}/oauth2/callback",
        "http-address": front.removeprefix("http://"),
        "upstream": pages,
    }
    documented = [option for option in options() if option.removeprefix("--").partition("=")[0] not in local]
    runners = []
    for app, url in ((Provider(issuer).app(), issuer), (site.app(), pages)):
        runners.append(web.AppRunner(app))
        await runners[-1].setup()
        await web.TCPSite(runners[-1], "127.0.0.1", int(url.rpartition(":")[2])).start()
    command = [
        str(binaries.extra_program("oauth2-proxy")),
        *documented,
        *(f"--{key}={value}" for key, value in local.items()),
    ]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([*command, "--cookie-secure=false"], stdout=log, stderr=log)  # noqa: ASYNC220  # returns at once
    try:
        for _ in range(150):
            assert process.poll() is None, (tmp_path / "log").read_text()[-1000:]
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", int(front.rpartition(":")[2]))
                writer.close()
                break
            except OSError:
                await asyncio.sleep(0.1)
        assert difference(guided().output or "", (tmp_path / "log").read_text()) is None
        yield front
    finally:
        process.terminate()
        process.wait(10)
        for runner in runners:
            await runner.cleanup()


async def test_a_user_signs_in_and_sees_the_models_of_their_group(proxied: str) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as browser:
        async with browser.get(f"{proxied}/") as page:
            assert page.status == 200
            assert "<main" in await page.text()
        async with browser.get(f"{proxied}/api/session") as session:
            assert (await session.json())["user"] == "ada@example.com"
        async with browser.get(f"{proxied}/api/models") as models:
            assert {row["namespace"] for row in (await models.json())["rows"]} == {"team-a"}
        async with browser.get(f"{proxied}/api/models/team-b/model-0002") as other:
            assert other.status == 403
        async with browser.get(f"{proxied}/api/stream/models") as stream, asyncio.timeout(10):
            assert b"retry" in await stream.content.readline()


async def test_headers_of_a_client_do_not_pass_the_proxy(proxied: str) -> None:
    headers = {"X-Forwarded-Email": "eve@example.com", "X-Forwarded-Groups": "ml-team"}
    async with (
        aiohttp.ClientSession(headers=headers) as stranger,
        stranger.get(f"{proxied}/api/models", allow_redirects=False) as answer,
    ):
        assert answer.status in {302, 401, 403}
