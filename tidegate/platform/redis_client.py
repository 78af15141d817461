"""
Connects to Redis (or Valkey), or soon says why not.

Law: :func:`connect` returns a client whose server has answered, or raises within ``redis.connect_timeout``. Every error names the address,
never the password. A call within :func:`translate_errors` fails with a TidegateError only. After an error that waiting does not mend (a
password, a certificate, a right) it is not tried again.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ordering.errors import RefusedError, SettingError, UnreachableError
from ordering.ticks import SECOND_US, format_duration
from tidegate.basics.access_rights import redis_acl
from tidegate.basics.secret_masking import remember, scrub
from tidegate.basics.unnamed_servers import warn_of_unnamed
from tidegate.platform.settings.tables.redis import RedisConnection

if TYPE_CHECKING:  # the client is imported by whoever connects: it is slow to load
    import redis
    from redis.retry import Retry

ANSWER_TIMEOUT_US_MAX = 6 * SECOND_US
_RETRIES = 2
_PAUSE_S = 0.2
# How long a refused connection or an unknown name is tried again, seconds. A command needs up to two more seconds before it connects, and
# its user should read of the error within about three.
REFUSED_S = 1.0


def answer_timeout_us(settings: RedisConnection) -> int:
    """Return how long one call may take, in microseconds: never longer than connecting may."""
    return min(ANSWER_TIMEOUT_US_MAX, settings.connect_timeout_us)


def connect(settings: RedisConnection, retries: int = _RETRIES, encoding_errors: str = "strict") -> redis.Redis:
    """
    Return a client of the server in *settings*, whose texts are str. If the connection breaks, a call is repeated *retries* times.
    *encoding_errors* is the handling of answers that are not UTF-8, see :meth:`bytes.decode`.

    Raises:
        UnreachableError: The server did not answer within ``redis.connect_timeout``, or within a second if the connection is refused or the
            name unknown (TG-REDIS-UNREACHABLE); it rejects the login (TG-REDIS-AUTH); or one side rejects the other's certificate
            (TG-REDIS-TLS).
        RefusedError: This user may not even send PING (TG-REDIS-DENIED).
        SettingError: The URL has a part that the client does not know.
    """
    import redis
    from redis.backoff import ExponentialBackoff
    from redis.retry import Retry

    remember(settings.connection_url())
    began_s = time.monotonic()
    deadline_s = began_s + settings.connect_timeout_us / SECOND_US
    refused_until_s = min(began_s + REFUSED_S, deadline_s)
    while True:
        try:
            _probe(settings, max(deadline_s - time.monotonic(), _PAUSE_S))
            warn_of_unnamed(settings, "url", "Redis", settings.address)
            # A call is repeated after a broken connection, but not if the server hangs: the caller has other work.
            retry = Retry(ExponentialBackoff(cap=1, base=0.1), retries, supported_errors=(redis.ConnectionError,))
            return _client(settings, answer_timeout_us(settings) / SECOND_US, retry, encoding_errors)
        except redis.AuthenticationError as error:
            raise _login_error(settings, error) from None
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            if _is_about_certificates(error):
                raise _tls_error(settings, error) from None
            if time.monotonic() + _PAUSE_S > (refused_until_s if _is_refusal(error) else deadline_s):
                raise _no_answer_error(settings, error, time.monotonic() - began_s) from None
            time.sleep(_PAUSE_S)
        except redis.ResponseError as error:
            if is_denial(error):
                raise denial_error(settings.address, error) from None
            raise _login_error(settings, error) from None


def _is_refusal(error: BaseException | None) -> bool:
    """Return whether the port is closed or the host name unknown; a slow server causes neither."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError | socket.gaierror):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_about_certificates(error: BaseException | None) -> bool:
    """Return whether TLS failed for a reason that the next try would meet again."""
    while error is not None:
        if isinstance(error, ssl.SSLError) or (isinstance(error, OSError) and error.filename is not None):
            return not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
        error = error.__cause__ or error.__context__
    return False


def _probe(settings: RedisConnection, left_s: float) -> None:
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    # Half of the time left to connect and half to answer, so a server that accepts and then hangs takes no more than all of it.
    with _client(settings, left_s / 2, Retry(NoBackoff(), 0)) as client:
        client.ping()


def _client(settings: RedisConnection, timeout_s: float, retry: Retry, encoding_errors: str = "strict") -> redis.Redis:
    import redis

    try:
        return redis.Redis.from_url(
            settings.connection_url(),
            **settings.client_options(),
            **({"ssl_check_hostname": True} if settings.connection_url().startswith("rediss://") else {}),
            socket_connect_timeout=timeout_s,
            socket_timeout=timeout_s,
            retry=retry,
            decode_responses=True,
            encoding_errors=encoding_errors,
            protocol=2,
            client_name="tidegate",
        )
    except (ValueError, TypeError) as error:
        url = f"{settings.table}.url"
        problem = f"{url} = {settings.address} cannot be used: {scrub(str(error))}"
        raise SettingError(problem, code="TG-SETTING-VALUE", where=url, example="redis://localhost:6379/0") from None


def _no_answer_error(settings: RedisConnection, error: Exception, waited_s: float) -> UnreachableError:
    table = settings.table
    waited = format_duration(round(waited_s) * SECOND_US)
    what = f"Redis at {settings.address} does not answer ({waited} waited): {scrub(str(error))}"
    fix = f"start it (tidegate up starts one), or correct {table}.url"
    if settings.connection_url().startswith("rediss://") and not settings.certificate_file:
        fix += f"; if it asks for certificates, give {table}.certificate_file and {table}.key_file"
    example = f'[{table}]\nurl = "redis://localhost:6379/0"'
    return UnreachableError(what, code="TG-REDIS-UNREACHABLE", where=f"{table}.url", fix=fix, example=example)


def _login_error(settings: RedisConnection, error: Exception) -> UnreachableError:
    table = settings.table
    what = f"Redis at {settings.address} does not let us in: {scrub(str(error))}"
    fix = f"give user and password: {table}.username and {table}.password, as file:PATH or env:NAME, or within {table}.url"
    if "without any password configured" in str(error):
        fix = f"leave {table}.password out, as this server asks for none; or name another server"
    if "DB index" in str(error):
        fix = f"name a database that the server has at the end of {table}.url"
    return UnreachableError(what, code="TG-REDIS-AUTH", where=f"{table}.url", fix=fix, example='password = "file:/run/secrets/redis"')


def _tls_error(settings: RedisConnection, error: Exception) -> UnreachableError:
    table = settings.table
    what = f"Redis at {settings.address} and this client do not agree on TLS: {scrub(str(error))}"
    fix = (
        f"check the server's certificate (who signed it, the host name in it, how long it is valid) against {table}.ca_file, "
        f"and {table}.certificate_file with {table}.key_file if the server asks for one"
    )
    example = f'[{table}]\nurl = "rediss://cache:6379/0"\nca_file = "/etc/tidegate/ca.pem"'
    return UnreachableError(what, code="TG-REDIS-TLS", where=f"{table}.url", fix=fix, example=example)


def is_denial(error: redis.RedisError) -> bool:
    """Return whether this user's ACL forbids a command or a key. A denial inside a script or pipeline is known by its text only."""
    from redis.exceptions import NoPermissionError

    return isinstance(error, NoPermissionError) or "ACL failure in script" in str(error)


def denial_error(address: str, error: redis.RedisError) -> RefusedError:
    """Return the error for a command or a key that this user's ACL forbids."""
    reason = str(error).rpartition("of pipeline caused error: ")[2]
    what = f"Redis at {address} denies this user a command or a key: {scrub(reason)}"
    fix = "give the user exactly these rights (docs/operate/security.md)"
    return RefusedError(what, code="TG-REDIS-DENIED", where="redis.url", fix=fix, example=redis_acl())


class ForeignValueError(RefusedError):
    """*key* in Redis (empty: not known which) at *address* holds what Tidegate has not written; *why*: a few words after "it"."""

    def __init__(self, address: str, key: str, why: str) -> None:
        self.why = why
        super().__init__(
            f"{key or 'a key'} in Redis at {address} is not as Tidegate writes it: it {why}",
            code="TG-REDIS-CONTENT",
            where=key or "redis.url",
            fix="see who else writes into this Redis, and give Tidegate a server or a database of its own",
            example='[redis]\nurl = "redis://localhost:6379/1"',
        )


@contextmanager
def translate_errors(address: str) -> Iterator[None]:
    """
    Turn the client's errors in the block into ours; *address* is the server in messages, without secrets.

    Raises:
        UnreachableError: The server does not answer (TG-REDIS-UNREACHABLE), or cannot execute the command now (TG-REDIS-FAILED).
        RefusedError: This user may not use the command (TG-REDIS-DENIED).
        ForeignValueError: A key holds what Tidegate has not written (TG-REDIS-CONTENT).
    """
    import redis

    try:
        yield
    except UnicodeDecodeError as error:
        raise ForeignValueError(address, "", "holds bytes that are no text") from error
    except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
        what = f"Redis at {address} stopped answering: {scrub(str(error))}"
        fix = "bring it back; the job continues by itself without using what is not journaled"
        raise UnreachableError(what, code="TG-REDIS-UNREACHABLE", where="redis.url", fix=fix) from error
    except redis.RedisError as error:
        if is_denial(error):
            raise denial_error(address, error) from error
        if "WRONGTYPE" in str(error):
            raise ForeignValueError(address, "", "holds another kind of value") from error
        what = f"Redis at {address} cannot do what is needed: {scrub(str(error))}"
        fix = "look at the server's memory, disk and role (it must be a primary that can write)"
        raise UnreachableError(what, code="TG-REDIS-FAILED", where="redis.url", fix=fix) from error
