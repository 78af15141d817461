"""
Secrets: passwords, tokens and private keys that must never be shown.

Law: text that passed :func:`scrub` holds neither a secret that was read as a setting nor the password of any URL.
A setting is secret by its name (:func:`is_secret_key`); its value is remembered once read, so it is found again
wherever it turns up later: in another setting, a log event, a traceback of somebody else's library.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from urllib.parse import unquote

MASK = "***"
# Shorter secrets are hidden where they stand but not searched for elsewhere: masking every `a` would hide the log.
SECRET_LENGTH_MIN = 4
_LINE_LENGTH_MIN = 16

_SECRET_KEY = re.compile(
    r"passw(or)?d|passphrase|secret|token(?!.*(url|uri|scope))|credential|sasl\.jaas|sasl\.oauthbearer\.config"
    r"|ssl[._]key([._]pem)?$|private[._-]?key|api[._-]?key|access[._-]?key",
    re.IGNORECASE,
)
_SECRET_WORDS = ("password", "passphrase", "secret", "token", "credentials")
_NOT_SECRET = re.compile(r"(location|path|file|method|url|uri|algorithm|provider|class|enabled?|ms)$", re.IGNORECASE)
_URL_USER = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*://)(?P<user>[^\s/@:]*):(?P<password>[^\s/]+)@")

_remembered: set[str] = set()


@functools.lru_cache(maxsize=4096)
def is_secret_key(name: str) -> bool:
    """
    Return whether a setting or log field called *name* (dotted or not) holds a secret; a path to one is none.

    A misspelled ``passwrod`` counts: its value is a password all the same.
    """
    if _NOT_SECRET.search(name):
        return False
    words = re.split(r"[._-]", name.lower())
    return bool(_SECRET_KEY.search(name)) or any(difflib.get_close_matches(word, _SECRET_WORDS, n=1, cutoff=0.82) for word in words)


def remember(secret: str) -> None:
    """Have *secret*, and the password of a URL in it, masked by :func:`scrub` from now on, in this process."""
    for match in _URL_USER.finditer(secret):
        _remember_text(match["password"])
        _remember_text(unquote(match["password"]))
    if "://" not in secret:
        _remember_text(secret)
        # Of a key in many lines one alone is secret enough.
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
    Properties of a client, secrets included. Printed, it hides them; wherever it travels, :func:`scrub` knows them from then on.

    Workers are other processes: what the driver remembers as secret they would print in their logs.
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
    """Return *text* with URL passwords and every remembered secret replaced by ``***``."""
    text = _URL_USER.sub(rf"\g<scheme>\g<user>:{MASK}@", text)
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
