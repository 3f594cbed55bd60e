"""Writer of the lines of haproxy.cfg, from constant templates and validated values. Pure.

Templates are constants of this package. `$name` in a template stands for a number, a name, an address or a path, which is validated.
Free text cannot be added, so no value from a user can become HAProxy syntax.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_PATH = re.compile(r"/[A-Za-z0-9_./-]{0,90}")
_PLACE = re.compile(r"\$([a-z_]+)")
_MAX_NUMBER = 2**31 - 1


class ConfigError(ValueError):
    """Error raised if a value is not allowed in haproxy.cfg."""


class Writer:
    """Collector of configuration lines; `$name` in a template stands for a validated value."""

    def __init__(self) -> None:
        """Create an empty configuration."""
        self._lines: list[str] = []

    def section(self, template: str, **values: int | str) -> None:
        """Start a section of haproxy.cfg, with this template as its first line.

        Raises:
            ConfigError: a value is not allowed; the message names the value and a valid example. `add` also raises this
                error.
        """
        self._lines += ["", self._fill(template, values)]

    def add(self, template: str, **values: int | str) -> None:
        """Add one line to the current section."""
        self._lines.append("  " + self._fill(template, values))

    def text(self) -> str:
        """Return the text of the configuration so far."""
        return "\n".join(self._lines).lstrip("\n") + "\n"

    @staticmethod
    def _fill(template: str, values: Mapping[str, int | str]) -> str:
        return _PLACE.sub(lambda place: _checked(place[1], values[place[1]]), template)


def _checked(field: str, value: int | str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ConfigError(f"{field} is {value!r}; it must be a number or a name, for example 60000 or digits-v2")
    if isinstance(value, int):
        if not 0 <= value <= _MAX_NUMBER:
            raise ConfigError(f"{field} is {value}; it must be from 0 to {_MAX_NUMBER}, for example 60000")
        return str(value)
    if field == "address":
        return _address(value)
    if field in {"file", "ca_file"}:
        return _match(_PATH, field, value, "/run/halcyon/haproxy.sock")
    name = _match(_NAME, field, value, "digits-v2")
    # In regular expressions a dot would match any character.
    return name.replace(".", "[.]") if field == "model_re" else name


def _match(pattern: re.Pattern[str], field: str, value: str, example: str) -> str:
    if not pattern.fullmatch(value):
        raise ConfigError(f"{field} is {value!r}; it must match {pattern.pattern}, for example {example}")
    return value


def _address(value: str) -> str:
    try:
        address = ipaddress.ip_address(value)
    except ValueError as error:
        raise ConfigError(f"address is {value!r}; it must be an IP address, for example 10.0.0.7") from error
    if address.version == 6 and address.scope_id is not None:
        raise ConfigError(f"address is {value!r}; the address of a server must not have a zone")
    return f"[{address}]" if address.version == 6 else str(address)
