"""Authentication of clients with API keys: the rules of haproxy.cfg, and the file of key digests that they use. Pure.

HAProxy receives only SHA-256 digests of the keys, so no configuration, log or core dump reveals a key, and the duration
of a comparison doesn't show how much of a guessed key is right. Keys are random, unlike passwords, so no slow hash is
needed.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from halcyon.balancer.config import access_log, error_responses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.model import Listen
    from halcyon.balancer.config.writer import Writer

USAGE: Final = "usage"
"""Name of the stick table that counts the inference requests and the bytes of each client."""
MAX_CLIENTS: Final = 256
"""Maximum number of clients in the table `USAGE`. Further clients are not counted."""
_TRACKED: Final = 7
"""Number of the stick counter with which HAProxy tracks a client."""
MIN_CHARACTERS = 16
_KEY = re.compile(r"[!-~]{16,512}")
_NAME = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_KEY_HEADERS: Final = ("authorization", "x-api-key")
_CLIENT_HEADER: Final = "halcyon-client"
"""Header with the client's name. It replaces the header for sticky routing if that header contains the API key."""
_NO_KEY = (401, 16, "an API key is required: send Authorization: Bearer KEY, or x-api-key: KEY")


def without_keys(plan: BalancerPlan, listen: Listen) -> BalancerPlan:
    """Return the plan with sticky routing by the client's name, if the header for sticky routing contains the API key.

    HAProxy removes the key before it chooses a pod. The name has the same effect, because each client has one key.
    """
    contains_key = listen.keys is not None and plan.sticky_header in _KEY_HEADERS
    return replace(plan, sticky_header=_CLIENT_HEADER) if contains_key else plan


def authentication_rules(out: Writer, plan: BalancerPlan, listen: Listen, protocol: Protocol) -> None:
    """Add the rules of a client-facing front end that reject clients without a valid key.

    They come before all rules whose responses reveal anything about the model. They remove the key, so that pods don't
    receive it.
    """
    if listen.keys is None:
        return
    lookup = "sha2(256),hex,map_str($file)"
    file = listen.beside(listen.keys)
    out.add(f"http-request set-var(txn.client) http_auth_bearer,{lookup}", file=file)
    out.add(
        f"http-request set-var(txn.client) req.fhdr(x-api-key),{lookup} if !{{ var(txn.client) -m found }}", file=file
    )
    access_log.client_rule(out, plan, "txn.client")
    error_responses.reject(out, protocol, _NO_KEY, "!{ var(txn.client) -m found }")
    for header in _KEY_HEADERS:
        out.add(f"http-request del-header {header}")
    if plan.sticky_header == _CLIENT_HEADER:
        out.add(f"http-request set-header {_CLIENT_HEADER} %[var(txn.client)]")


def usage_table(out: Writer) -> None:
    """Add the stick table that counts the usage by each client.

    Its entries never expire, because the counts of an expired entry would be lost. If a Secret has more clients than
    the table has entries, the clients that come later are not counted.
    """
    out.section("backend $table", table=USAGE)
    out.add(
        "stick-table type string len 254 size $most nopurge store http_req_cnt,bytes_in_cnt,bytes_out_cnt",
        most=MAX_CLIENTS,
    )


def usage_rule(out: Writer, listen: Listen) -> None:
    """Add the rule of a client-facing front end that counts inference requests by client.

    The rule uses the ACL `infers`.
    """
    if listen.keys is not None:
        out.add(f"http-request track-sc{_TRACKED} var(txn.client) table $table if infers", table=USAGE)


def digests(keys: Mapping[str, bytes]) -> tuple[str, list[str]]:
    """Return the text of the file with the digests of API keys, and a message for each invalid key.

    Each line of the file contains a digest and the client's name. Invalid keys are left out of the file.

    Args:
        keys: API key by client name, as in the Secret.
    """
    lines, problems = [], []
    for name, content in sorted(keys.items()):
        key = content.decode("ascii", errors="replace").strip()
        if not _NAME.fullmatch(name) or not _KEY.fullmatch(key):
            problems.append(f"{name} is not a valid key: it must have {MIN_CHARACTERS} to 512 visible ASCII characters")
            continue
        lines.append(f"{hashlib.sha256(key.encode()).hexdigest().upper()} {name}\n")
    return "".join(lines), problems
