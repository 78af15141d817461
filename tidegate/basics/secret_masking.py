"""
Secrets: passwords, tokens and private keys that must never be shown.

Law: text that passed :func:`scrub` contains no secret that was read as a setting, and none that shows itself: in a URL as its password, a
parameter or a token, in a pair ``password=x`` as libpq, JDBC and Azure write it, in an option of a JVM, in an ``Authorization``. A setting
is secret by its name (:func:`is_secret_key`) or by what stands in it (:func:`secrets_in`). Its secrets are remembered when it is read, and
masked wherever they turn up later: in another setting, a log event, an error or a traceback of another library.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote

MASK = "***"
# Shorter secrets are masked in their own settings, but not elsewhere: masking every `a` would hide the log.
SECRET_LENGTH_MIN = 4
_LINE_LENGTH_MIN = 16

_SECRET_KEY = re.compile(
    r"passw(or)?d|passphrase|(^|[._-]|key|store|user)(pass|pwd)$|secret|token(?!.*(url|uri|scope))|credential|sasl\.jaas"
    r"|ssl[._]key([._]pem)?$|key[._]?store[._]key$|(private|api|access|account|master|storage|shared|customer|signing|service)[._-]?key"
    r"|(^|[._-])sas([._-]?key|$)|session[._-]key|connection[._-]?string|user[._]info$|authorization$|(^|[._-])auth$|cookie|(^|[._-])bearer"
    r"|encryption[._-]?key$",
    re.IGNORECASE,
)
# Names that are secret whatever their ending: they contain the name of an account or container, or a later librdkafka adds properties.
_SECRET_FAMILY = re.compile(
    r"(^|\.)fs\.(azure\.account\.key|azure\.sas\.(?!expiry|token\.)|[\w.-]*encryption[\w.-]*[.-]key([.-](hash|sha))?$)"
    r"|sasl\.oauthbearer\.(?!assertion\.(algorithm|claim|file|jwt|private\.key\.file)|client\.(credentials\.client\.)?id$"
    r"|grant|metadata|method|scope|sub\.claim|token\.endpoint)",
    re.IGNORECASE,
)
# By this expression Spark masks settings in its own log whose name or value matches.
SPARK_REDACTION = f"(?i){_SECRET_KEY.pattern}|{_SECRET_FAMILY.pattern}"
_SECRET_WORDS = ("password", "passphrase", "secret", "token", "credentials")
# Words that are no misspelled _SECRET_WORDS.
_PLAIN_WORDS = ("secure",)
_NOT_SECRET = re.compile(
    r"(location|path|files?|method|url|uri|algorithm|provider|class|enabled?|ms|type|length|client\.id)$", re.IGNORECASE
)
# The lookbehinds keep the search linear: a long word is tried from its beginning only.
_URL_USER = re.compile(r"(?<![a-zA-Z0-9+.-])(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*://)(?P<user>[^\s/@:]*):(?P<password>[^\s/]+)@")
# An address whose user is a token, without a password.
_URL_TOKEN = re.compile(r"(?<![a-zA-Z0-9+.-])(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*://)(?P<user>[^\s/@:?#]+)@")
# NAME=VALUE: a parameter of a URL, a pair of libpq, of JDBC, of Azure's connection strings.
_PAIR = re.compile(r"(?<![\w.%-])(?P<name>[A-Za-z_][\w.%-]*)=(?P<value>\"[^\"]*\"|'(?:[^'\\]|\\.)*'|[^\s&;#'\"]+)")
# The same with the blanks that libpq allows; in settings only, since a sentence may have them too.
_LOOSE_PAIR = re.compile(r"(?<![\w.%-])(?P<name>[A-Za-z_][\w.%-]*)\s*=\s*(?P<value>\"[^\"]*\"|'(?:[^'\\]|\\.)*'|[^\s&;#'\"]+)")
# A member of JSON, or of a Python dictionary that a traceback shows.
_MEMBER = re.compile(
    r"(?P<quote>['\"])(?P<name>[A-Za-z_][\w.-]*)(?P=quote)(?P<colon>\s*:\s*)(?P<value>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
)
_AUTHORIZATION = re.compile(
    r"(?i)\b(?P<head>authorization['\"]?\s*[:=]\s*['\"]?(?:[a-z0-9-]+\s+)?|bearer\s+(?=\S{20}))(?P<value>[^\s'\",]{4,})"
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_JSON_WEB_TOKEN = re.compile(r"(?<![\w.-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")
# Parameters of a URL that are secret though no setting of that name would be: signatures, and keys of web services.
_SECRET_PARAMETERS = ("sig", "signature", "x-amz-signature", "x-goog-signature", "hmac", "jwt")
_KEY_PARAMETERS = ("key", "code", "hash", "id_token")
_KEY_LENGTH_MIN = 8
_TOKEN_LENGTH_MIN = 16
# A step of a URL's path, or a part of one: some stand behind a number and a colon, or before an ending. Hosts are no secrets.
_PATH_STEP = re.compile(r"(?<=[/:;,=])(?<!://)[\w~-]+(?=[/:;,.?#\s'\"]|$)")

# A property of a JVM, such as those in spark.driver.extraJavaOptions.
_JAVA_PROPERTY = re.compile(r"(?P<name>-D[\w.-]+)=(?P<value>\"[^\"]*\"|'[^']*'|\S+)")

_remembered: set[str] = set()


@functools.lru_cache(maxsize=4096)
def is_secret_key(name: str) -> bool:
    """
    Return whether a setting or log field called *name* (dotted or not) holds a secret; the path of a secret is none. A misspelled name such
    as ``passwrod`` counts too, as its value is still a password.
    """
    if _SECRET_FAMILY.search(name):
        return True
    if _NOT_SECRET.search(name):
        return False
    words = set(re.split(r"[._-]", name.lower())).difference(_PLAIN_WORDS)
    return bool(_SECRET_KEY.search(name)) or any(difflib.get_close_matches(word, _SECRET_WORDS, n=1, cutoff=0.82) for word in words)


def remember(secret: str) -> None:
    """
    Have *secret*, and those that stand in it, masked by :func:`scrub` from now on, in this process. Of an address or a connection string
    only the secrets in it count.
    """
    inner = list(secrets_in(secret, is_address=True))
    for text in inner:
        _remember_text(text)
        _remember_text(unquote(text))
    if not inner and "://" not in secret:
        _remember_text(secret)
        # Each line of a key of many lines is a secret by itself.
        for line in secret.splitlines():
            if len(line) >= _LINE_LENGTH_MIN and not line.startswith("-----"):
                _remember_text(line)


def _remember_text(secret: str) -> None:
    if len(secret) >= SECRET_LENGTH_MIN:
        # As it stands, in a URL, and within quotes.
        _remembered.update((secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]))


def secrets_in(text: str, *, is_address: bool = False) -> Iterator[str]:
    """
    Yield the secrets that show themselves in the value of a setting: passwords and tokens of URLs, secret parameters, secret pairs, private
    keys. With *is_address*, *text* says how to reach a server: its pairs may have blanks, and steps of its path may be tokens.
    """
    yield from (match["password"] for match in _URL_USER.finditer(text))
    yield from (match["user"] for match in _URL_TOKEN.finditer(text) if looks_random(match["user"]))
    for match in (_LOOSE_PAIR if is_address else _PAIR).finditer(text):
        # Outside of addresses, what looks like a pair may be an expression over a field of that name.
        if (is_address or _is_parameter(text, match)) and _is_secret_pair(text, match):
            yield match["value"].strip("'\"")
    yield from (match[0] for match in _JSON_WEB_TOKEN.finditer(text))
    if _PRIVATE_KEY.search(text):
        yield text
    if is_address and "://" in text:
        yield from (match[0] for match in _PATH_STEP.finditer(text, text.index("://") + 3) if looks_random(match[0]))


def _is_parameter(text: str, pair: re.Match[str]) -> bool:
    return text[pair.start() - 1 : pair.start()] in ("?", "&")


def _is_secret_pair(text: str, pair: re.Match[str]) -> bool:
    name, value = unquote(pair["name"]), pair["value"]
    if is_secret_key(name):
        return not _is_reference(value)
    is_key = name.lower() in _KEY_PARAMETERS and len(value) >= _KEY_LENGTH_MIN
    return _is_parameter(text, pair) and (is_key or name.lower() in _SECRET_PARAMETERS)


def _is_reference(value: str) -> bool:
    """Return whether a value only names where a secret is, or is masked already."""
    return value.startswith(("file:", "env:")) or value == MASK


def looks_random(text: str) -> bool:
    """Return whether *text* looks made by a generator of tokens: long, one word, digits among letters of both cases or hexadecimal."""
    if len(text) < _TOKEN_LENGTH_MIN or not re.fullmatch(r"[\w+=~-]+", text):
        return False
    has_digit, has_letter = any(map(str.isdigit, text)), any(map(str.isalpha, text))
    has_both_cases = text not in (text.lower(), text.upper())
    return has_digit and has_letter and (has_both_cases or bool(re.fullmatch(r"[0-9a-fA-F-]+", text)))


def has_password(text: str) -> bool:
    """Return whether *text*, an address, holds a password or another secret."""
    return any(True for _ in secrets_in(text, is_address=True))


class Secrets(dict[str, str]):
    """
    Properties of a client, secrets included. Its repr masks them, and in every process that receives it :func:`scrub` knows them.

    Workers are such processes: only the driver reads the settings, and without this class workers would log secrets unmasked.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        for name, value in properties.items():
            for secret in [value] if is_secret_key(name) else list(secrets_in(value, is_address=True)):
                remember(secret)

    def __repr__(self) -> str:
        return repr({name: mask_setting(name, value) for name, value in self.items()})

    def __reduce__(self) -> tuple[object, ...]:
        return Secrets, (dict(self),)


def scrub(text: str) -> str:
    """Return *text* with every remembered secret, and each that shows itself in it, replaced by ``***``."""
    text = _URL_USER.sub(rf"\g<scheme>\g<user>:{MASK}@", text)
    text = _URL_TOKEN.sub(lambda match: f"{match['scheme']}{MASK}@" if looks_random(match["user"]) else match[0], text)
    text = _JAVA_PROPERTY.sub(lambda match: f"{match['name']}={MASK}" if is_secret_key(match["name"]) else match[0], text)
    text = _PAIR.sub(lambda match: f"{match['name']}={MASK}" if _is_secret_pair(text, match) else match[0], text)
    text = _MEMBER.sub(_mask_member, text)
    text = _AUTHORIZATION.sub(rf"\g<head>{MASK}", text)
    return mask_remembered(_JSON_WEB_TOKEN.sub(MASK, text))


def mask_remembered(text: str) -> str:
    """Return *text* with every remembered secret replaced by ``***``."""
    for secret in sorted(_remembered, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def scrub_error(fields: Mapping[str, str]) -> dict[str, str]:
    """
    Scrub the fields of an error, which may cite the message of a client. Fix and example are texts of ours, which show where a password
    stands: in them only remembered secrets are masked.
    """
    return {name: mask_remembered(text) if name in ("fix", "example") else scrub(text) for name, text in fields.items()}


def _mask_member(match: re.Match[str]) -> str:
    quote = match["value"][0]
    is_secret = is_secret_key(match["name"]) and len(match["value"]) > 2 and not _is_reference(match["value"][1:-1])
    return f"{match['quote']}{match['name']}{match['quote']}{match['colon']}{quote}{MASK}{quote}" if is_secret else match[0]


def mask_address(address: str) -> str:
    """Return an address as it may be shown: without passwords, secret parameters, and steps of its path that look like tokens."""
    for secret in sorted(secrets_in(address, is_address=True), key=len, reverse=True):
        address = address.replace(secret, MASK)
    return scrub(address)


def mask_setting(name: str, value: str) -> str:
    """Return *value* as it may be shown for a setting called *name*."""
    return MASK if is_secret_key(name) and value else scrub(value)


def scrub_value(name: str, value: object) -> object:
    """Scrub one field of a log event, nested tables and lists included; numbers, booleans and None pass."""
    if isinstance(value, Mapping):
        return {scrub(str(key)): scrub_value(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [scrub_value(name, inner) for inner in value]
    if is_secret_key(name) and value not in (None, ""):
        return MASK
    if value is None or isinstance(value, bool | int | float):
        return value
    return scrub(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))
