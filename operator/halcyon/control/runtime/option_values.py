"""Parsers for the values of the operator's options.

If a value is invalid, they raise an ArgumentTypeError with a valid example.
"""

from __future__ import annotations

import argparse
import ipaddress
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from halcyon.api.policy.downloads import SiteDownloads
from halcyon.api.policy.network import SiteNetwork
from halcyon.api.policy.site_policy import SitePolicy
from halcyon.api.spec.placement import Placement
from halcyon.api.types import ApiModel, quantity
from halcyon.kube.errors import SettingsError

_Value = TypeVar("_Value")
_Read = TypeVar("_Read", bound=ApiModel)
"""Type of the object to which the JSON value of an option is parsed."""
_CPU = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?|[0-9]{1,7}m")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-A-Za-z0-9_.]*")
_KEY = re.compile(rf"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?|{_PREFIX.pattern}")


def parse_share(text: str) -> float:
    """Parse a share from the value of an option. A share is a number from 0 to 1."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1; for example 0.1")
    return share


def number_parser(high: int, example: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from 1 to `high`. Its error message contains the example."""

    def parse(text: str) -> int:
        number = int(text) if text.isascii() and text.isdecimal() else 0
        if not 1 <= number <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {high}; for example {example}")
        return number

    return parse


def parse_count(text: str) -> int:
    """Parse a number of GPUs from an option's value."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GPUs; for example 64")
    return int(text)


def parse_cpu(text: str) -> str:
    """Parse a CPU limit from an option's value; empty for none. Halcyon's containers request up to 50m."""
    if text and (not _CPU.fullmatch(text) or quantity(text) < quantity("50m")):
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of CPU of at least 50m; for example 2 or 1500m")
    return text


def parse_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Parse a network in CIDR notation from an option's value."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a network: {error}; for example 10.0.12.0/24") from None


def parse_price(text: str) -> float:
    """Parse the price of a GPU per hour."""
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not 0 <= price < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a price; for example 2.50")
    return price


def parse_product_price(text: str) -> tuple[str, float]:
    """Parse PRODUCT=PRICE. PRODUCT is a GPU product, and PRICE is the price of one such GPU per hour."""
    product, _, price = text.rpartition("=")
    if not product:
        raise argparse.ArgumentTypeError(f"{text!r} has no product; for example NVIDIA-L4=0.80, or default=2.50")
    return product, parse_price(price)


def parse_prefixes(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of prefixes of annotation keys from an option's value."""
    example = "service.beta.kubernetes.io/,external-dns.alpha.kubernetes.io/hostname"
    return _listed(text, _PREFIX, f"is not a prefix of an annotation key with a domain; for example {example}")


def parse_keys(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of keys of labels or annotations. An entry with a slash is a prefix of keys."""
    return _listed(text, _KEY, "is not a key, or a prefix with a slash; for example kueue.x-k8s.io/,cost-center")


def _listed(text: str, pattern: re.Pattern[str], problem: str) -> tuple[str, ...]:
    entries = tuple(part.strip() for part in text.split(",") if part.strip())
    for entry in entries:
        if not pattern.fullmatch(entry):
            raise argparse.ArgumentTypeError(f"{entry!r} {problem}")
    return entries


def parse_placement(text: str) -> Placement:
    """Parse the placement of pods on nodes from JSON."""
    return parse_json(
        Placement, text, "is not a placement", '{"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}'
    )


def parse_network_peers(text: str) -> SiteNetwork:
    """Parse the peers for NetworkPolicies from JSON."""
    example = '{"operator": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "halcyon"}}}]}'
    return parse_json(SiteNetwork, text, "has invalid peers", example)


def parse_downloads(text: str) -> SiteDownloads:
    """Parse the proxy and the certificates for downloads from JSON."""
    hint = '{"proxy": "http://proxy.example.com:3128", "noProxy": [".svc", "10.0.0.0/8"], "caConfigMap": "ca-bundle"}'
    return parse_json(SiteDownloads, text, "has no valid settings for downloads", hint)


def parse_json(kind: type[_Read], text: str, problem: str, example: str) -> _Read:
    """Parse JSON text as an object of the type `kind`.

    For the error message, `problem` describes the error and `example` is a valid value.
    """
    try:
        return kind.model_validate_json(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {problem}: {error}; for example {example}") from None


def parse_policy(name: str) -> SitePolicy:
    """Read the site policy from the file `name`."""
    try:
        return SitePolicy.from_json(Path(name).read_text())
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"cannot read {name}: {error.strerror}; for example a mounted policy.json"
        ) from None
    except ValueError as error:
        example = '{"limits": {"replicas": 8}}'
        raise argparse.ArgumentTypeError(f"{name} is not a site policy: {error}; for example {example}") from None


def parse_query(text: str) -> tuple[str, str]:
    """Parse NAME=PROMQL. NAME is the name of a query, and PROMQL is the query."""
    name, separator, query = text.partition("=")
    if not separator or not query.strip() or not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
        raise argparse.ArgumentTypeError(
            f'\'{text}\' is not NAME=PROMQL; for example pending-jobs=sum(jobs{{namespace="$namespace",model="$name"}})'
        )
    return name, query


def by_name(option: str, pairs: Sequence[tuple[str, _Value]]) -> dict[str, _Value]:
    """Return the values of a repeatable option by name. Raise a SettingsError if a name is given twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise SettingsError(f"{option} is given twice for one of {', '.join(values)}; give each name once")
    return values


def parse_cluster(text: str) -> str:
    """Parse the name of the cluster, which is a label value in metrics."""
    if not re.fullmatch(r"[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a cluster; for example prod-eu-1")
    return text


def parse_base_url(text: str) -> str:
    """Parse the base URL of a web site, and return it without a slash at its end.

    Raises:
        argparse.ArgumentTypeError: the text isn't an http:// or https:// URL with a host, or it has a password, a query
            or a fragment.
    """
    try:
        parts = urlsplit(text)
        is_valid = (
            parts.scheme in {"http", "https"}
            and parts.hostname
            and not (parts.query or parts.fragment or "@" in parts.netloc)
        )
    except ValueError:
        is_valid = False
    if not is_valid or re.search(r"[\s\"'<>\\]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no base URL; for example https://grafana.example.com")
    return text.rstrip("/")
