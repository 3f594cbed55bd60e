"""Parsing and rendering of config.pbtxt, with errors that quote the invalid line.

Out of scope: merging of the overlay (`merge`).
"""

from __future__ import annotations

import codecs
import re

from google.protobuf import text_format

from halcyon.model_config import model_config_proto
from halcyon.model_config.errors import ModelConfigError, UnknownFieldError
from halcyon.model_config.model_config_proto import ModelConfig

FILE = "config.pbtxt"
MAX_BYTES = 1024 * 1024
"""Maximum size of a config.pbtxt in bytes. Normal files have a few KiB; parsing a larger one could exceed the
container's memory limit."""

_MAX_QUOTED = 160
"""Maximum number of characters that an error quotes from a line."""


def parse(content: bytes, *, with_unknown: bool = False) -> ModelConfig:
    """Parse the content of a config.pbtxt. If `with_unknown` is true, fields that this version doesn't know are ignored.

    Raises:
        UnknownFieldError: a field or an enum value is not known to this version.
        ModelConfigError: the content is not a ModelConfig in protobuf's text format; the message has line, column and text.
    """
    text = _MINUS.sub(lambda match: match[1] or f"{match[2]}-", _decode(content))
    try:
        return text_format.Parse(text, model_config_proto.empty(), allow_unknown_field=with_unknown)
    except text_format.ParseError as error:
        raise _explain(text, error) from error
    except RecursionError as error:
        raise ModelConfigError(f"{FILE} has too many fields inside each other; is a closing brace missing?") from error


def parse_if_valid(content: bytes | None) -> ModelConfig:
    """Parse a file, ignoring fields unknown to this version. The result is empty if the file is invalid or None."""
    try:
        return parse(content or b"", with_unknown=True)
    except ModelConfigError:
        return model_config_proto.empty()


def as_triton_reads(content: bytes) -> bytes:
    """Return the content in an encoding and with spaces that Triton can parse.

    Byte-order marks are removed, and UTF-16, which Windows writes, is converted. Spaces copied from web pages become
    normal spaces, and bytes in comments that aren't UTF-8 become question marks.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            content = content.decode("utf-16").encode()
        except UnicodeError as error:
            raise ModelConfigError(f"{FILE} begins as UTF-16, but isn't; save the file as UTF-8 text") from error
    text = content.removeprefix(codecs.BOM_UTF8).decode(errors="surrogateescape")
    return _FOREIGN.sub(_replaced, text).encode(errors="surrogateescape")


_QUOTED = r""""(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?"""
"""Pattern of a quoted text, or of the rest of the line if the closing quote is missing, so that each character is read
once."""
_FOREIGN = re.compile(rf"(#[^\n]*)|({_QUOTED})|[^\S \t\n\r\v\f]")
"""Pattern of comments, quoted strings, and spaces that protobuf's text format does not allow."""
_MINUS = re.compile(rf"(#[^\n]*|{_QUOTED})|(?<![\w.+-])-((?:\s|#[^\n]*(?:\n|\Z))+)(?=[\d.]|inf|nan)", re.IGNORECASE)
"""Pattern of comments, quoted strings, and signs separated from their number, which only Triton's parser accepts."""


def _replaced(match: re.Match[str]) -> str:
    return match[1].encode(errors="replace").decode() if match[1] else match[2] or " "


def render(config: ModelConfig) -> bytes:
    """Return the configuration in protobuf's text format. Equal configurations result in equal text."""
    return text_format.MessageToString(config).encode()


def declared_name(content: bytes) -> str:
    """Return the value of the top-level field `name`, even if other fields are unknown; empty if there is none.

    Raises:
        ModelConfigError: the content cannot be split into tokens.
    """
    text = _decode(content)
    depth, name = 0, ""
    try:
        tokens = text_format.Tokenizer(text.split("\n"))
        while not tokens.AtEnd():
            word = tokens.token
            tokens.NextToken()
            depth += (word in {"{", "[", "<"}) - (word in {"}", "]", ">"})
            if depth == 0 and word == "name" and tokens.TryConsume(":"):
                name = tokens.ConsumeString()
    except text_format.ParseError as error:
        raise _explain(text, error) from error
    return name


def _decode(content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise ModelConfigError(
            f"{FILE} has {len(content)} bytes or more; the limit is {MAX_BYTES}. Is it another file?"
        )
    nul = content.find(b"\0")
    if nul >= 0:
        raise ModelConfigError(f"{FILE}, line {_line(content, nul)}: a NUL byte; it must be text, not binary")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ModelConfigError(
            f"{FILE}, line {_line(content, error.start)}: byte 0x{content[error.start]:02x} is not UTF-8; save the file "
            "as UTF-8 text"
        ) from error


def _line(content: bytes, at: int) -> int:
    return content.count(b"\n", 0, at) + 1


def _explain(text: str, error: text_format.ParseError) -> ModelConfigError:
    lines = text.split("\n")
    number, column = error.GetLine() or 1, error.GetColumn() or 1
    if number > len(lines) or not lines[number - 1].strip():
        # Report an error at the end of the file at the last line with text.
        number = max((at for at, line in enumerate(lines[:number], 1) if line.strip()), default=1)
        column = len(lines[number - 1].rstrip()) + 1
    problem = _problem(error)
    message = f"{FILE}, line {number}, column {column}: {_quote(lines[number - 1], column)}: {problem}"
    unknown = re.search(r'has no field named "([^"]*)"|has no value (?:named|with number) ([^."\']+)', problem)
    if unknown is None:
        good = next(good for start, good in _EXPECTED if start in problem)
        return ModelConfigError(f"{message}; expected {good}")
    return UnknownFieldError(message + _nearest(unknown[1] or unknown[2], problem))


def _problem(error: text_format.ParseError) -> str:
    """Return protobuf's error message without the position and the quoted line that some messages begin with."""
    words = re.sub(r"^\d+(:\d+)? : ", "", str(error))
    return re.sub(r"^'.*': (?=[A-Z])", "", words, flags=re.DOTALL).rstrip(".")


def _quote(line: str, column: int) -> str:
    start = max(0, min(column - 1 - _MAX_QUOTED // 2, len(line) - _MAX_QUOTED))
    cut = line[start : start + _MAX_QUOTED].strip()
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in cut)
    return f"`{'...' if start else ''}{shown}{'...' if len(line) > start + _MAX_QUOTED else ''}`"


_EXPECTED = (
    ("Couldn't parse integer", "a whole number, for example max_batch_size: 16"),
    ("Value out of range", "a number that fits its field, for example max_batch_size: 16"),
    ("Couldn't parse float", "a number, for example 0.5"),
    ('Expected "true" or "false"', "for example preserve_ordering: true"),
    ("Expected string but found", 'text in quotes, for example name: "digits"'),
    ("Couldn't parse string", 'UTF-8 text in quotes, for example name: "digits"'),
    ("String missing ending quote", 'text in quotes on one line, for example name: "digits"'),
    ('Expected ":"', "field: value, for example max_batch_size: 16"),
    ('Expected "{"', "field { ... }, for example dynamic_batching { }"),
    ('Expected "}"', "a closing brace, for example dynamic_batching { }"),
    ("should not have multiple", "the field once"),
    ("has no value named", "a value without quotes, for example kind: KIND_CPU"),
    ("is specified along with field", "one of the two"),
    ("", 'protobuf text format, for example backend: "python"'),
)


def _nearest(word: str, problem: str) -> str:
    import difflib  # noqa: PLC0415  # only on the way to an error

    kind = re.search(r'type "([^"]*)"', problem)
    names: list[str] = []
    if kind is not None:
        pool = model_config_proto.module().DESCRIPTOR.pool
        if problem.startswith("Enum"):
            names = list(pool.FindEnumTypeByName(kind[1]).values_by_name)
        else:
            names = list(pool.FindMessageTypeByName(kind[1]).fields_by_name)
    near = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]}?" if near else ""
