"""
Secrets: passwords, tokens and private keys that must never be shown.

Law: text that passed :func:`scrub` contains no secret that was read as a setting, and no password of a URL or of a JVM's option. A setting
is secret by its name (:func:`is_secret_key`). Its value is remembered when it is read, and masked wherever it turns up later: in another
setting, a log event, a traceback of another library.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from urllib.parse import unquote

MASK = "***"
# Shorter secrets are masked in their own settings, but not elsewhere: masking every `a` would hide the log.
SECRET_LENGTH_MIN = 4
_LINE_LENGTH_MIN = 16

_SECRET_KEY = re.compile(
    r"passw(or)?d|passphrase|(^|[._-]|key|store|user)(pass|pwd)$|secret|token(?!.*(url|uri|scope))|credential|sasl\.jaas"
    r"|ssl[._]key([._]pem)?$|key[._]?store[._]key$|private[._-]?key|api[._-]?key|access[._-]?key|account[._-]?key|(^|[._-])sas[._-]?key"
    r"|session[._-]key|connection[._-]?string|user[._]info$",
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
_URL_USER = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*://)(?P<user>[^\s/@:]*):(?P<password>[^\s/]+)@")

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
    """Have *secret*, and the password of a URL in it, masked by :func:`scrub` from now on, in this process."""
    for match in _URL_USER.finditer(secret):
        _remember_text(match["password"])
        _remember_text(unquote(match["password"]))
    if "://" not in secret:
        _remember_text(secret)
        # Each line of a key of many lines is a secret by itself.
        for line in secret.splitlines():
            if len(line) >= _LINE_LENGTH_MIN and not line.startswith("-----"):
                _remember_text(line)


def _remember_text(secret: str) -> None:
    if len(secret) >= SECRET_LENGTH_MIN:
        _remembered.add(secret)


def has_password(text: str) -> bool:
    """Return whether *text* holds a URL with a password in it."""
    return bool(_URL_USER.search(text))


class Secrets(dict[str, str]):
    """
    Properties of a client, secrets included. Its repr masks them, and in every process that receives it :func:`scrub` knows them.

    Workers are such processes: only the driver reads the settings, and without this class workers would log secrets unmasked.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        for name, value in properties.items():
            if is_secret_key(name):
                remember(value)

    def __repr__(self) -> str:
        return repr({name: mask_setting(name, value) for name, value in self.items()})

    def __reduce__(self) -> tuple[object, ...]:
        return Secrets, (dict(self),)


def scrub(text: str) -> str:
    """Return *text* with URL passwords, secret properties of a JVM and every remembered secret replaced by ``***``."""
    text = _URL_USER.sub(rf"\g<scheme>\g<user>:{MASK}@", text)
    text = _JAVA_PROPERTY.sub(lambda match: f"{match['name']}={MASK}" if is_secret_key(match["name"]) else match[0], text)
    for secret in sorted(_remembered, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


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
