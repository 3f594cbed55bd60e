"""Building blocks of the fields of Halcyon's resources: base model, rules, durations, quantities and names.

Out of scope: the fields of the resource (`spec`, `status`), and the generation of the schema (`schema`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_UP, Decimal
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import core_schema

from halcyon.api.string_forms import CIDR, DURATION, FORMS, QUANTITY

GROUP = "serving.halcyon.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "ModelDeployment"
PLURAL = "modeldeployments"
BATCH_KIND = "BatchInference"
BATCH_PLURAL = "batchinferences"

NAME_PATTERN = r"^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$"
"""Pattern of ModelDeployment names: at most 52 characters, because the names of their child objects are longer."""
NAME_MESSAGE = (
    f"metadata.name is '%s' (%d characters); it must match {NAME_PATTERN} (at most 52 characters, so that the names of its "
    "children fit); for example resnet50"
)
"""Error message for an invalid name, used by the API server and by `halcyon.api.spec.parse`. Its placeholders stand for
the name and the length of the name."""


@dataclass(frozen=True)
class Rule:
    """Validation rule over several fields, which the API server checks in CEL and the operator in Python.

    In the template `message`, a name in braces such as `{minReplicas}` stands for the value of that field. A
    differential test compares the CEL form with the Python form.
    """

    cel: str
    check: Callable[[Any], bool]
    message: str
    static: str = ""
    """Message that the API server uses if the values cannot be inserted into the template. If it is empty, the template
    without values is used."""
    reason: str = "FieldValueInvalid"

    def __post_init__(self) -> None:
        """Reject a template in which an example such as `{secretName: models}` would be read as a field.

        Raises:
            ValueError: a name in braces is followed by a colon; literal braces must be doubled.
        """
        for _, name, form, conversion in string.Formatter().parse(self.message):
            if form or conversion:
                raise ValueError(
                    f"{{{name}:{form}}} in the message of a rule: write literal braces twice: {self.message}"
                )

    def parts(self) -> list[tuple[str, str]]:
        """Return the message template as pairs of a literal text and the path of the field after it.

        The path is empty if no field follows.
        """
        return [(text, name or "") for text, name, _, _ in string.Formatter().parse(self.message)]

    def message_cel(self) -> str:
        """Return a CEL expression that evaluates to the message, with the values of the fields inserted.

        It uses `format`, because the API server estimates too high a cost for the concatenation of strings of any
        length.
        """
        text = "".join(text.replace("%", "%%") + ("%s" if path else "") for text, path in self.parts())
        values = ", ".join(f"self.{path}" for _, path in self.parts() if path)
        return f"{cel_string(text)}.format([{values}])"

    def message_for(self, value: BaseModel) -> str:
        """Return the message with the field values of `value` inserted."""
        return "".join(text + (_cel_text(_walk(value, path)) if path else "") for text, path in self.parts())


def cel_string(text: str) -> str:
    """Return the text as a CEL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _cel_text(value: Any) -> str:  # in the form of CEL's format
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _walk(value: Any, path: str) -> Any:  # the value at the path
    for name in path.split("."):
        value = getattr(value, next(n for n, info in type(value).model_fields.items() if (info.alias or n) == name))
    return value


class BrokenRulesError(ValueError):
    """An object breaks rules that involve several fields. The text has one sentence for each broken rule."""

    def __init__(self, value: ApiModel, *rules: Rule) -> None:
        self.broken = tuple((rule.message_for(value), frozenset(re.findall(r"\w+", rule.cel))) for rule in rules)
        """Sentence about each broken rule, and the words of the rule, which include the names of the fields."""
        super().__init__("; ".join(sentence for sentence, _ in self.broken))
        self.names_path = value.names_path


class ApiModel(BaseModel):
    """Base class of all parts of a resource.

    Instances are immutable, have camelCase names in the API, and accept no unknown fields.
    """

    # pydantic builds the validator of a class when it is first used (`defer_build`). Most classes never need their own: they
    # are parts of a resource, whose validator contains theirs, or of a status, which the operator writes as a dict.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()
    names_path: ClassVar[bool] = True
    """Whether the messages of the rules contain the path of the object. False if the object is at several paths."""

    @model_validator(mode="after")
    def _obey_rules(self) -> Self:
        if broken := [rule for rule in self.rules if not rule.check(self)]:
            raise BrokenRulesError(self, *broken)
        return self

    @classmethod
    def defaults(cls) -> Self:
        """Return an instance with default values, without validation, so that pydantic need not build a validator."""
        return cls.model_construct()  # type: ignore[return-value]  # pydantic's plugin for mypy gives it the base's type

    def to_dict(self) -> dict[str, Any]:
        """Return the object as in the Kubernetes API: with camelCase names, and without fields that are None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


@dataclass(frozen=True)
class ListMap:
    """Annotation of a list whose items are identified by keys (`x-kubernetes-list-type: map`). It checks that the keys are unique."""

    keys: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return the pydantic schema of the list, followed by the check."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        named = ", ".join(self.keys)
        _reject_duplicates([", ".join(str(_walk(item, key)) for key in self.keys) for item in items], kind=named)
        return items


@dataclass(frozen=True)
class ListSet:
    """Annotation of a list of distinct scalars (`x-kubernetes-list-type: set`). It checks that they are distinct."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return the pydantic schema of the list, followed by the check."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        _reject_duplicates([str(item) for item in items], kind="item")
        return items


@dataclass(frozen=True)
class AtomicMap:
    """Annotation of an object that server-side apply replaces completely (`x-kubernetes-map-type: atomic`).

    Without it, an apply of `{}` after an apply of `{field: value}` removes the field, and then the empty object. The
    API server then adds the default of the object, which is something other than `{}`.
    """


def _reject_duplicates(texts: list[str], *, kind: str) -> None:
    duplicates = sorted({text for text in texts if texts.count(text) > 1})
    if duplicates:
        raise ValueError(f"{kind} {duplicates[0]} is listed more than once; list each one once")


INT_OR_STRING = BeforeValidator(lambda value: str(value) if type(value) is int else value)
"""Annotation of a string field that may also be written as a whole number (`x-kubernetes-int-or-string`)."""


@dataclass(frozen=True)
class StringRules:
    """Validation rules of a string field, each in CEL and in Python."""

    rules: tuple[Rule, ...] = field(default=())


_UNIT_US = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}


def duration_us(text: str) -> int:
    """Parse a duration such as `2ms` or `1m30s`, and return it in microseconds.

    Raises:
        ValueError: the text is not a duration.
    """
    if len(text) < 2 or not re.fullmatch(DURATION, text):
        raise ValueError(f"'{text}' is not a duration; write {FORMS[DURATION].text}")
    return sum(int(n) * _UNIT_US[unit] for n, unit in re.findall(r"([0-9]+)(h|ms|us|m|s)", text))


def duration_s(text: str) -> float:
    """Parse a duration such as `2ms` or `1m30s`, and return it in seconds."""
    return duration_us(text) / 1e6


LIMITS: dict[str, tuple[str, str]] = {}
"""Smallest and largest valid value of a string, for each CEL rule that limits a string."""


def _limited_text(form: Any, low: str, high: str, fits: Callable[[str], bool], cel: str) -> Any:  # type expressions
    """Return the text type `form`, limited to values from `low` to `high`, which are those that `fits` and `cel` accept."""
    limit, LIMITS[cel] = f"must be between {low} and {high}", (low, high)

    def check(text: str) -> str:
        if not fits(text):
            raise ValueError(limit)
        return text

    return Annotated[form, AfterValidator(check), StringRules((Rule(cel=cel, check=fits, message="", static=limit),))]


def duration_field(low: str, high: str) -> Any:  # a type expression
    """Return the annotated type of a duration field with values from `low` to `high`, inclusive."""
    low_us, high_us = duration_us(low), duration_us(high)
    return _limited_text(
        Annotated[str, StringConstraints(pattern=DURATION, min_length=2, max_length=32)],
        low,
        high,
        lambda text: low_us <= duration_us(text) <= high_us,
        f"duration(self) >= duration('{low}') && duration(self) <= duration('{high}')",
    )


_FACTOR = {
    "": Decimal(1),
    **{unit: Decimal(1000) ** n for n, unit in enumerate(("n", "u", "m"), -3)},
    **{unit: Decimal(1000) ** n for n, unit in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{unit: Decimal(1024) ** n for n, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


# Grammar of k8s.io/apimachinery/pkg/api/resource: the `E` in `1E` is the suffix exa, and `1E3` and `1e3` are 1000.
_ANY_QUANTITY = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+)|([A-Za-z]*))")
_MAX_QUANTITY = Decimal(2**63 - 1)
_MIN_QUANTITY = Decimal("1e-9")
_FAR = 100
"""Power of ten above which a number isn't computed, because it is certainly above `_MAX_QUANTITY`. A number below the
negative of this power is certainly below `_MIN_QUANTITY`."""


def quantity(text: str) -> Decimal:
    """Parse a Kubernetes quantity such as `500m`, `4Gi` or `1e3`, and return its value in the base unit (cores, bytes).

    All forms that the API server accepts are supported, including negative ones. A value above 2^63 - 1, the maximum in
    Kubernetes, is returned as this maximum. Values are rounded up to a multiple of 10^-9.

    Raises:
        ValueError: the text is not a quantity.
    """
    match = _ANY_QUANTITY.fullmatch(text)
    if match is None or (match[3] is None and match[4] not in _FACTOR):
        raise ValueError(f"'{text[:80]}' is not a quantity; write {FORMS[QUANTITY].text}")
    size = Decimal(match[2])
    if size:
        size = min(_scaled(size, match[3]) if match[3] else size * _FACTOR[match[4] or ""], _MAX_QUANTITY)
        size = size.quantize(_MIN_QUANTITY, ROUND_UP)
    return -size if match[1] == "-" else size


def _scaled(size: Decimal, exponent: str) -> Decimal:
    """Return `size` times ten to the power of `exponent`, a string with any number of digits."""
    digits = exponent.lstrip("+-").lstrip("0") or "0"
    power = int(digits) if len(digits) < 9 else 10**9
    power = -power if exponent.startswith("-") else power
    if size.adjusted() + power > _FAR:
        return _MAX_QUANTITY
    return _MIN_QUANTITY if size.adjusted() + power < -_FAR else size.scaleb(power)


def quantity_field(low: str, high: str) -> Any:  # a type expression
    """Return the annotated type of a quantity field with values from `low` to `high`, inclusive."""
    return _limited_text(
        Quantity,
        low,
        high,
        lambda text: quantity(low) <= quantity(text) <= quantity(high),
        f"{quantity_cel('self')}.compareTo(quantity('{low}')) >= 0 && {quantity_cel('self')}.compareTo(quantity('{high}')) <= 0",
    )


def quantity_cel(path: str) -> str:
    """Return a CEL expression for the quantity at a path, which is a string or a whole number."""
    # Not `quantity(string(...))`, because the API server can't estimate the cost of `string`.
    return f"(type({path}) == int ? quantity('0').add({path}) : quantity({path}))"


DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_NAME = rf"{DNS_LABEL}(\.{DNS_LABEL})*"
"""Pattern of a DNS subdomain."""
PORT = "(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"
"""Pattern of a port number from 1 to 65535."""
HOST = rf"{DNS_NAME}(:{PORT})?"
"""Pattern of a hostname or an IPv4 address, with or without a port."""

Quantity = Annotated[str, StringConstraints(pattern=QUANTITY, min_length=1, max_length=32), INT_OR_STRING]
DnsName = Annotated[str, StringConstraints(pattern=f"^{DNS_NAME}$", min_length=1, max_length=253)]
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$", min_length=1, max_length=63)]
Key = Annotated[str, StringConstraints(pattern=r"^[-._a-zA-Z0-9]+$", min_length=1, max_length=253)]
RelativePath = Annotated[
    str,
    StringConstraints(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$", min_length=1, max_length=512
    ),
]
"""Relative path. It has no leading slash, and no segment starts with a dot, so it cannot lead out of its base folder."""
Image = Annotated[
    str,
    StringConstraints(
        pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*"
        r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[a-f0-9]{64})?$",
        min_length=1,
        max_length=512,
    ),
]
LabelValue = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", max_length=63)]
LabelKey = Annotated[
    str,
    StringConstraints(
        pattern=rf"^({DNS_NAME}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$", min_length=1, max_length=317
    ),
]
Cidr = Annotated[str, StringConstraints(pattern=CIDR, min_length=1, max_length=43)]
"""Range of IP addresses in CIDR notation. IPv6 addresses must be in lower case."""
Text = Annotated[str, Field(max_length=4096)]
Short = Annotated[str, Field(max_length=253)]
"""Type of a name or word in a status, at most 253 characters."""
Long = Annotated[str, Field(max_length=1024)]
"""Type of one or more sentences in a status, at most 1024 characters."""
Time = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
Count = Annotated[int, Field(ge=0, le=1000000)]


def exactly_one(*names: str, subject: str, example: str) -> Rule:
    """Return the rule that exactly one of the given fields, named in camelCase, must be set.

    `subject` is the name of the object in the message, and `example` is the valid example in the message.
    """
    attributes = {name: "".join("_" + c.lower() if c.isupper() else c for c in name) for name in names}
    return Rule(
        cel=f"[{', '.join(f'has(self.{n})' for n in names)}].filter(x, x).size() == 1",
        check=lambda m: sum(getattr(m, a) is not None for a in attributes.values()) == 1,
        message=f"{subject} needs exactly one of {', '.join(names)}; for example "
        + example.replace("{", "{{").replace("}", "}}"),
    )
