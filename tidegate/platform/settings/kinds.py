"""
The kinds of setting values: how each is written in ``tidegate.toml``, and its value in Python.

Law: text written by a kind reads back as the same value (except masked secrets), so a printed configuration can be used. Durations become
int microseconds, sizes int bytes; a number without a unit is refused as a duration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, PlainSerializer, SecretStr

from ordering.errors import SettingError, TickRangeError
from ordering.ticks import format_duration, parse_duration
from tidegate.basics.secret_masking import MASK, mask_address, mask_setting, remember

_SIZE = re.compile(r"(\d{1,18})\s*(B|kB|KB|MB|GB|KiB|MiB|GiB)?")
_SIZE_UNITS = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
SIZE_BYTES_MAX = 2**60
_PORT_MAX = 65_535
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OBJECT_STORES = ("s3", "gs", "abfs", "abfss")
HDFS_SCHEMES = ("webhdfs", "swebhdfs")
_ADDRESS = re.compile(r"(?:[^\s,:/@]+|\[[0-9a-fA-F:]+\])(?::(\d{1,5}))?")
_HEADER_NAME_MAX, _HEADERS_MAX = 255, 64


@dataclass(frozen=True, slots=True)
class Kind:
    """Documentation of a kind of setting: its unit or form, in the words of ``tidegate config --schema``."""

    unit: str


class HiddenSecret(SecretStr):
    """A secret that :func:`~tidegate.basics.secret_masking.scrub` masks in every process that receives it."""

    def __init__(self, secret_value: str) -> None:
        super().__init__(secret_value)
        remember(secret_value)

    # Unpickled by the constructor, so that the receiving process registers the secret.
    def __reduce__(self) -> tuple[object, ...]:
        return HiddenSecret, (self.get_secret_value(),)


class MissingSecret(HiddenSecret):
    """
    A secret whose file or variable is not there. Whatever does not need it works; to ask for it raises *problem*. *reference* is what was
    written, such as ``env:SHOP_PG``.
    """

    def __init__(self, reference: str, problem: SettingError) -> None:
        SecretStr.__init__(self, "")
        self.reference, self.problem = reference, problem

    def get_secret_value(self) -> str:
        raise SettingError(
            self.problem.what, code=self.problem.code, where=self.problem.where, fix=self.problem.fix, example=self.problem.example
        )

    def __reduce__(self) -> tuple[object, ...]:
        return MissingSecret, (self.reference, self.problem)


def peek_secret(secret: SecretStr | None) -> str | None:
    """Return the text of a secret for checks of the settings alone; None: there is none, or it is not set."""
    return None if secret is None or isinstance(secret, MissingSecret) else secret.get_secret_value()


def require_secrets(table: BaseModel) -> None:
    """Raise SettingError (TG-SETTING-UNSET) if a secret of a table is named, and not set: the job would find out later that it needs it."""
    for _, value in table:
        for secret in value.values() if isinstance(value, Mapping) else [value]:
            if isinstance(secret, MissingSecret):
                secret.get_secret_value()


def show_secret(secret: SecretStr | None) -> str | None:
    """Return what is shown in place of a secret."""
    return None if secret is None else secret.reference if isinstance(secret, MissingSecret) else MASK


def _show_url(url: SecretStr) -> str:
    return url.reference if isinstance(url, MissingSecret) else mask_address(url.get_secret_value())


class NotAllowed(ValueError):
    """A value is not of its kind; the text names the allowed values."""


def parse_size(value: object) -> int:
    """Return a size such as ``256MiB``, ``1GB`` or a number, in bytes; raise NotAllowed if it is no size."""
    match = _SIZE.fullmatch(str(value).strip()) if isinstance(value, str | int) and not isinstance(value, bool) else None
    size_bytes = int(match[1]) * _SIZE_UNITS[match[2] or "B"] if match else SIZE_BYTES_MAX + 1
    if size_bytes > SIZE_BYTES_MAX:
        raise NotAllowed("a size: a whole number and B, kB, MB, GB, KiB, MiB or GiB, such as 256MiB; at most 1073741824GiB")
    return size_bytes


def format_size(size_bytes: int) -> str:
    """Write a size in the largest binary unit that keeps it exact: ``268435456`` -> ``256MiB``."""
    for unit in ("GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % _SIZE_UNITS[unit] == 0:
            return f"{size_bytes // _SIZE_UNITS[unit]}{unit}"
    return f"{size_bytes}B"


def _parse_duration(value: object) -> int:
    try:
        if isinstance(value, str):
            return parse_duration(value.strip())
    except TickRangeError:
        pass
    raise NotAllowed("a duration: a number and us, ms, s, m, h or d, such as 5s or 1h30m")


def _parse_delay(value: object) -> int:
    if isinstance(value, str) and value.strip() == format_duration(-1):
        return -1
    try:
        return _parse_duration(value)
    except NotAllowed as error:
        raise NotAllowed(f"{error}; or -1us, the one negative delay there is") from None


def _duration_parser(word: str) -> Callable[[object], int | None]:
    def parse(value: object) -> int | None:
        if value is None or value == word:
            return None
        try:
            return _parse_duration(value)
        except NotAllowed as error:
            raise NotAllowed(f'{error}, or "{word}"') from None

    return parse


def _duration_writer(word: str) -> Callable[[int | None], str]:
    return lambda duration_us: word if duration_us is None else format_duration(duration_us)


def parse_topic(value: object) -> str:
    """Return a name that Kafka allows for a topic; raise NotAllowed if it is none."""
    if not isinstance(value, str) or not _TOPIC.fullmatch(value) or value in {".", ".."}:
        raise NotAllowed("a Kafka topic name: letters, digits, '.', '_' and '-', at most 249")
    return value


def _parse_topics(value: object) -> tuple[str, ...]:
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names:
        raise NotAllowed("a Kafka topic name, or a list of them")
    if len(set(names)) != len(names):
        raise NotAllowed("a list of different topics")
    return tuple(parse_topic(name) for name in names)


def _parse_pattern(value: object) -> str:
    reason = "empty, or no text"
    try:
        if isinstance(value, str) and value:
            return re.compile(value).pattern
    except re.error as error:
        reason = str(error)
    raise NotAllowed(f"a regular expression for whole topic names, such as flights-.* ({reason})")


def _write_topics(topics: tuple[str, ...]) -> str | list[str]:
    return topics[0] if len(topics) == 1 else list(topics)


def _parse_bootstrap(value: object) -> str:
    addresses = value.split(",") if isinstance(value, str) else []
    found = [_ADDRESS.fullmatch(address.strip()) for address in addresses]
    if not found or not all(match and int(match[1] or 0) <= _PORT_MAX for match in found):
        raise NotAllowed(f"host:port, several separated by commas; a port is at most {_PORT_MAX}")
    return ",".join(address.strip() for address in addresses)


def _hide(secret: SecretStr | None) -> SecretStr | None:
    return secret if secret is None or isinstance(secret, MissingSecret) else HiddenSecret(secret.get_secret_value())


def _parse_url(value: object, pattern: str, form: str) -> SecretStr:
    if isinstance(value, MissingSecret):
        return value
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if not isinstance(text, str) or not re.match(pattern, text) or not _has_valid_port(text):
        raise NotAllowed(form)
    return HiddenSecret(text)


def _has_valid_port(url: str) -> bool:
    try:
        # libpq takes several hosts, each with its port.
        return "," in url or (urlsplit(url).port or 0) <= _PORT_MAX
    except ValueError:
        return False


def url_parser(pattern: str, form: str) -> BeforeValidator:
    """Return the validator of a URL that may hold a password: it must match *pattern*, and messages show its *form*."""
    return BeforeValidator(partial(_parse_url, pattern=pattern, form=form))


def _parse_place(value: object, schemes: tuple[str, ...]) -> str:
    text = value if isinstance(value, str) else ""
    scheme, separator, rest = text.partition("://")
    user, _, _ = rest.partition("/")[0].rpartition("@")
    if ":" in user:
        remember(user.partition(":")[2])
        raise NotAllowed("a URL without a password: its credentials come from the environment, as the store's own tools take them")
    if not text or (separator and scheme not in schemes):
        raise NotAllowed(f"a path, or a URL that begins with {', '.join(f'{scheme}://' for scheme in schemes)}")
    return text


def _parse_properties(value: object) -> dict[str, SecretStr]:
    if not isinstance(value, dict):
        raise NotAllowed("a table of properties")
    return {str(key): _parse_property(str(key), inner) for key, inner in value.items()}


def _parse_property(key: str, value: object) -> SecretStr:
    if isinstance(value, SecretStr):
        return value
    if isinstance(value, bool):
        return SecretStr("true" if value else "false")
    if isinstance(value, str | int | float):
        return SecretStr(str(value))
    raise NotAllowed(f"text, a number, true or false for {key}")


def _parse_field_path(value: object) -> str:
    if not isinstance(value, str) or not value or any(not step for step in value.split(".")):
        raise NotAllowed("a field path: names separated by dots, none of them empty, such as payload.device.id")
    # Payload parsers take * for every member at once, even in quotes.
    if "*" in value.split("."):
        raise NotAllowed("a field path of names, such as payload.device.id; * is none")
    # Brackets would be part of the name, so no field would be found and all events would belong to one substream.
    if any(step.strip().startswith("[") and step.strip().endswith("]") for step in value.split(".")):
        raise NotAllowed(f"a field path of names as they stand in the payload, without brackets: {value.replace('[', '').replace(']', '')}")
    return value


def _parse_field_paths(value: object) -> str:
    """Parse a field path or several, as a list or with commas between them; return them with commas."""
    paths = value.split(",") if isinstance(value, str) else value
    if not isinstance(paths, list | tuple) or not paths:
        raise NotAllowed("a field path such as payload.device.id, or a list of them")
    parsed = [_parse_field_path(path.strip() if isinstance(path, str) else path) for path in paths]
    if any("," in path for path in parsed) or len({path.lower() for path in parsed}) < len(parsed):
        raise NotAllowed("a field path, or a list of different ones; no name has a comma")
    return ", ".join(parsed)


def _parse_header_names(value: object) -> tuple[str, ...]:
    """Parse the names of record headers, as a list or with commas between them; return them sorted: their order means nothing."""
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise NotAllowed("a list of names of record headers")
    if any(not name or not name.isprintable() or len(name) > _HEADER_NAME_MAX for name in names):
        raise NotAllowed(f"names of record headers: printable, not empty, at most {_HEADER_NAME_MAX} characters")
    # Imported here, because these modules load numpy.
    from ordering.protocol.facts import FACTS_HEADER_NAME
    from ordering.protocol.wire import HEADER_NAME

    # "*" stands for all headers where topics are compared.
    if reserved := {HEADER_NAME, FACTS_HEADER_NAME, "*"} & set(names):
        raise NotAllowed(f"names of record headers; {', '.join(sorted(reserved))} is Tidegate's own")
    if len(set(names)) < len(names) or len(names) > _HEADERS_MAX:
        raise NotAllowed(f"different names of record headers, at most {_HEADERS_MAX}")
    return tuple(sorted(names))


def masked_properties(table: dict[str, SecretStr]) -> dict[str, str]:
    """Return the properties of a free table for printing; secret ones, recognized by their names, are masked."""
    return {key: _show_property(key, value) for key, value in table.items()}


def _show_property(key: str, value: SecretStr) -> str:
    return value.reference if isinstance(value, MissingSecret) else mask_setting(key, value.get_secret_value())


def reveal_properties(table: dict[str, SecretStr]) -> dict[str, str]:
    """Return the properties of a free table with their true values, for their client only."""
    return {key: value.get_secret_value() for key, value in table.items()}


def plain_text(value: Any) -> str:
    """Write a setting's value as one line of text: text as it is, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


Duration = Annotated[int, BeforeValidator(_parse_duration), PlainSerializer(format_duration), Kind("duration")]
DelayOrTick = Annotated[int, BeforeValidator(_parse_delay), PlainSerializer(format_duration), Kind("duration, or -1us")]
DurationOrOff = Annotated[
    int | None, BeforeValidator(_duration_parser("off")), PlainSerializer(_duration_writer("off")), Kind('duration or "off"')
]
DurationOrForever = Annotated[
    int | None, BeforeValidator(_duration_parser("forever")), PlainSerializer(_duration_writer("forever")), Kind('duration or "forever"')
]
Size = Annotated[int, BeforeValidator(parse_size), PlainSerializer(format_size), Kind("size in bytes, or with a unit such as MiB")]
Topic = Annotated[str, BeforeValidator(parse_topic), Kind("topic name")]
Topics = Annotated[tuple[str, ...], BeforeValidator(_parse_topics), PlainSerializer(_write_topics), Kind("topic name, or a list of them")]
TopicPattern = Annotated[str, BeforeValidator(_parse_pattern), Kind("regular expression")]
Bootstrap = Annotated[str, BeforeValidator(_parse_bootstrap), Kind("host:port, several separated by commas")]
# A URL that may hold a password; to be used with a url_parser.
SecretUrl = Annotated[SecretStr, PlainSerializer(_show_url), Kind("URL, file:PATH or env:NAME")]
RedisUrl = Annotated[
    SecretUrl,
    url_parser(r"(rediss?|unix)://\S+$", "redis://[user:password@]host:port/db (rediss:// for TLS, unix:// for a socket)"),
]
Secret = Annotated[
    SecretStr | None,
    AfterValidator(_hide),
    PlainSerializer(show_secret),
    Kind("file:PATH or env:NAME; default: none"),
]
Properties = Annotated[
    dict[str, SecretStr], BeforeValidator(_parse_properties), PlainSerializer(masked_properties), Kind("table of properties")
]
FilesPlace = Annotated[str, BeforeValidator(partial(_parse_place, schemes=_OBJECT_STORES + HDFS_SCHEMES)), Kind("folder or URL")]
ObjectPlace = Annotated[str, BeforeValidator(partial(_parse_place, schemes=_OBJECT_STORES)), Kind("folder or URL")]
FieldPath = Annotated[str, BeforeValidator(_parse_field_path), Kind("field path")]
FieldPaths = Annotated[str, BeforeValidator(_parse_field_paths), Kind("field path, or a list of them")]
HeaderNames = Annotated[
    tuple[str, ...], BeforeValidator(_parse_header_names), PlainSerializer(list), Kind("list of header names; default: none")
]
