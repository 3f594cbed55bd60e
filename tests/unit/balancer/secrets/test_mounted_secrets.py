"""The file with certificate and key that HAProxy loads, made from a Secret of any tool that writes PEM."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from halcyon.api.documents.balancer_plan import CERTIFICATE_FOLDER, KEYS_FOLDER
from halcyon.balancer.secrets.mounted_secrets import MountedSecrets, SecretNames

EC_PARAMETERS = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
"""What `openssl ecparam -genkey` writes in front of a key of the curve prime256v1."""


def certificate(key: ec.EllipticCurvePrivateKey) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "digits")])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(days=90))
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()


def served(folder: Path, chain: str, key: str) -> tuple[str, str]:
    """The text of HAProxy's file, and the problems."""
    mounted, run = folder / "mounted", folder / "run"
    (mounted / CERTIFICATE_FOLDER).mkdir(parents=True)
    run.mkdir()
    for name, content in (("tls.crt", chain), ("tls.key", key)):
        (mounted / CERTIFICATE_FOLDER / name).write_bytes(content.encode())
    secrets = MountedSecrets(SecretNames("digits-tls"), mounted=mounted, config=run / "haproxy.cfg")
    secrets.refresh()
    file = secrets.tls.certificate if secrets.tls else ""
    return (run / file).read_text() if file else "", secrets.problems


@pytest.mark.parametrize(
    "written",
    [
        lambda text: text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", " \n"),
        lambda text: text.replace("\n", "\t\r\n"),
        lambda text: "subject=CN = digits\n" + text,
    ],
    ids=["plain", "windows", "spaces at the ends", "tabs at the ends", "text in front"],
)
@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_each_block_of_a_chain_and_its_key_is_served(
    tmp_path: Path, written: Callable[[str], str], form: PrivateFormat
) -> None:
    key, above = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    text = key.private_bytes(Encoding.PEM, form, NoEncryption()).decode()
    if form is PrivateFormat.TraditionalOpenSSL:
        text = EC_PARAMETERS + text
    file, problems = served(tmp_path, written(certificate(key) + certificate(above)), written(text))
    assert problems == ""
    assert file.count("-----BEGIN CERTIFICATE-----") == 2
    assert file.count("PRIVATE KEY-----\n") == 2


def test_a_block_of_a_chain_that_is_left_out_is_reported(tmp_path: Path) -> None:
    key, above = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    indented = certificate(above).replace("\n", "\n  ")
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    file, problems = served(tmp_path, certificate(key) + indented, text)
    assert problems == "Secret digits-tls: tls.crt has 2 PEM blocks, and 1 can't be read and are left out"
    assert file.count("-----BEGIN CERTIFICATE-----") == 1


def test_an_encrypted_key_is_not_reported_as_a_missing_beginning(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    encryption = BestAvailableEncryption(b"password")
    text = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, encryption).decode()
    assert text.startswith("-----BEGIN")
    file, problems = served(tmp_path, certificate(key), text)
    assert file == ""
    assert problems == (
        "Secret digits-tls: tls.key is not PEM that can be read: it is truncated, or a key is encrypted; "
        "no connection is accepted"
    )


def keys(folder: Path, contents: dict[str, str]) -> MountedSecrets:
    mounted, run = folder / "mounted", folder / "run"
    (mounted / KEYS_FOLDER).mkdir(parents=True)
    run.mkdir()
    for name, key in contents.items():
        (mounted / KEYS_FOLDER / name).write_text(key)
    secrets = MountedSecrets(SecretNames(keys="digits-keys"), mounted=mounted, config=run / "haproxy.cfg")
    assert secrets.digests == frozenset()
    secrets.refresh()
    return secrets


def test_a_secret_with_thousands_of_invalid_keys_is_a_short_problem(tmp_path: Path) -> None:
    secrets = keys(tmp_path, {f"client-{number:04}": "too short" for number in range(6000)})
    assert secrets.problems.startswith(
        "Secret digits-keys: there is no valid API key, so every request is rejected; client-0000 is not a valid key: "
    )
    assert secrets.problems.endswith("; 5997 more keys are not valid")
    # The operator shows 400 characters of it.
    assert len(secrets.problems) < 400


def test_the_digests_of_valid_keys_are_those_of_the_file(tmp_path: Path) -> None:
    secrets = keys(tmp_path, {"alice": "0123456789abcdef\n", "bob": "too short"})
    assert secrets.digests == {hashlib.sha256(b"0123456789abcdef").hexdigest().upper()}
