"""Stand-in for the token services of AWS, Microsoft and Google, for tests: it exchanges the token of a service account for credentials.

It checks what the clouds check: signature, audience, subject and expiry of the token, and the role, application or pool for which it is
exchanged. The credentials that it returns are those of the stores in the tests.
"""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jwt

from e2e import s3
from e2e.azure import ACCESS_TOKEN

ROLE = "arn:aws:iam::123456789012:role/models"
CLIENT, TENANT = "0c5cbd4c-55f2-4d0f-9e0f-6a2c6f1d8a11", "5a1b1c3e-7a0a-4f0e-8a53-6d3f1a2b3c4d"
PROVIDER = "projects/123456789012/locations/global/workloadIdentityPools/halcyon/providers/cluster"
_AUDIENCES = {
    "aws": "sts.amazonaws.com",
    "azure": "api://AzureADTokenExchange",
    "google": f"//iam.googleapis.com/{PROVIDER}",
}


@dataclass
class Service:
    """A running token service."""

    port: int
    key: Any
    """Public key of the issuer of service account tokens."""
    subject: str
    """Service account to which the clouds trust: `system:serviceaccount:NAMESPACE:NAME`."""
    paths: list[str] = field(default_factory=list)
    """Path of each request."""

    @property
    def url(self) -> str:
        """URL of the service."""
        return f"https://localhost:{self.port}"

    def denial(self, cloud: str, token: str, parameters: dict[str, str], required: dict[str, str]) -> str:
        """Return why the exchange is denied; empty if it is not."""
        try:
            claims = jwt.decode(token, self.key, algorithms=["RS256"], audience=_AUDIENCES[cloud])
        except jwt.InvalidTokenError as error:
            return str(error)
        if claims.get("sub") != self.subject:
            return f"the subject {claims.get('sub')} is not trusted"
        wrong = [name for name, value in required.items() if parameters.get(name) != value]
        return f"not authorized: {', '.join(wrong)}" if wrong else ""


@contextmanager
def running(key: Any, subject: str, certificate: Path, private_key: Path) -> Iterator[Service]:
    """Run the service on 127.0.0.1, with TLS for `localhost`, while the context is open."""
    service = Service(0, key, subject)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(service))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private_key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    service.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _aws(service: Service, parameters: dict[str, str]) -> tuple[int, str]:
    required = {"Action": "AssumeRoleWithWebIdentity", "RoleArn": ROLE}
    if denial := service.denial("aws", parameters.get("WebIdentityToken", ""), parameters, required):
        return (
            403,
            f"<ErrorResponse><Error><Code>AccessDenied</Code><Message>{denial}</Message></Error></ErrorResponse>",
        )
    expires = datetime.now(UTC) + timedelta(hours=1)
    credentials = {
        "AccessKeyId": s3.ACCESS_KEY,
        "SecretAccessKey": s3.SECRET_KEY,
        "SessionToken": "",
        "Expiration": f"{expires:%Y-%m-%dT%H:%M:%SZ}",
    }
    fields = "".join(f"<{name}>{value}</{name}>" for name, value in credentials.items())
    kind = "AssumeRoleWithWebIdentity"
    return 200, f"<{kind}Response><{kind}Result><Credentials>{fields}</Credentials></{kind}Result></{kind}Response>"


def _azure(service: Service, parameters: dict[str, str]) -> tuple[int, str]:
    required = {"client_id": CLIENT, "grant_type": "client_credentials"}
    if denial := service.denial("azure", parameters.get("client_assertion", ""), parameters, required):
        return 401, json.dumps({"error": "invalid_client", "error_description": denial})
    return 200, json.dumps({"access_token": ACCESS_TOKEN, "expires_in": 3600, "token_type": "Bearer"})


def _google(service: Service, parameters: dict[str, str]) -> tuple[int, str]:
    required = {
        "audience": _AUDIENCES["google"],
        "grantType": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subjectTokenType": "urn:ietf:params:oauth:token-type:jwt",
    }
    if denial := service.denial("google", parameters.get("subjectToken", ""), parameters, required):
        return 400, json.dumps({"error": "invalid_grant", "error_description": denial})
    return 200, json.dumps({"access_token": ACCESS_TOKEN, "expires_in": 3600, "token_type": "Bearer"})


def _handler(service: Service) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            url = urlsplit(self.path)
            service.paths.append(url.path)
            if url.path == "/v1/token":
                status, answer = _google(service, json.loads(body))
            elif url.path == f"/{TENANT}/oauth2/v2.0/token":
                status, answer = _azure(service, dict(parse_qsl(body)))
            else:
                status, answer = _aws(service, dict(parse_qsl(url.query)) | dict(parse_qsl(body)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
