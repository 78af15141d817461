"""
Which settings are secret: those whose names say so, and what stands in a free table under a name that is not known to be harmless.

A free table has properties that a library reads by names of its own. Law: the value of a property that is not known to be harmless is not
shown; if the names of the library are a closed list, it is refused where others could read it. Numbers, sizes, durations and booleans are
harmless under any name that does not say otherwise. Names that users choose, of inputs and of fields, make nothing secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidegate.basics.secret_masking import is_secret_key, looks_random, secrets_in

# The steps of a setting's name; below a free table the rest is one step: ("kafka", "client", "sasl.password").
Key = tuple[str, ...]

# By table and key, the addresses that may hold a password, with a valid value in place of a refused one.
SECRET_URLS: Mapping[Key, str] = {
    ("clickhouse", "url"): "https://unresolved",
    ("http", "url"): "https://unresolved",
    ("postgres", "url"): "postgresql://unresolved",
    ("redis", "url"): "redis://unresolved",
}
# Brokers take no user in their address; who writes one there writes the password too.
BROKERS: Key = ("kafka", "bootstrap")
_BROKER_PASSWORD = re.compile(r"(?<![^\s,/])[^\s,/@:]*:([^\s,]+)@")
_KINDS_OF_FIELDS = {("inputs", "fields"), ("references", "fields"), ("references", "effective"), ("outputs", "columns")}
_HARMLESS = re.compile(r"(?i)[+-]?\d+(\.\d+)?\s*[a-z%]{0,4}|true|false|none|null|on|off|auto|yes|no|")
# librdkafka refuses names that it does not know, so only the families in which a later version may add secrets are closed.
_KAFKA = re.compile(
    r"(?!sasl|ssl).*|sasl\.(mechanisms?|username|kerberos\..*|oauthbearer\..*)|security\.protocol"
    r"|ssl\.(ca|certificate|crl|key|keystore)\.location|ssl[._]ca([._]pem)?|ssl\.ca\.certificate\.stores|ssl[._]certificate([._]pem)?"
    r"|ssl\.(cipher\.suites|curves\.list|sigalgs\.list|providers|engine\.(id|location)|endpoint\.identification\.algorithm)"
)
# Options of the object_store crate and of delta-rs; they may begin with AWS_, AZURE_, GOOGLE_.
_DELTA = re.compile(
    r"(?i)(aws|azure|azure_storage|google|s3|aws_s3|delta|dynamo)?_?("
    r"(default_|signing_)?region|bucket(_name)?|endpoint(_url)?(_\w+)?|base_url|metadata_endpoint|msi_endpoint|identity_endpoint|proxy_url|authority(_host|_id)?"
    r"|(client|tenant|object|msi_resource|access_key|role_session)_?(id|name)|role_arn|profile|account_name|container_name|user_agent"
    r"|service_account(_path)?|application_credentials|(web_identity|federated)_token_file|container_credentials_\w+_uri"
    r"|checksum_algorithm|copy_if_not_exists|request_payer|server_side_encryption|sse_kms_key_id|locking_provider|\w*table_name|\w*billing_mode"
    r"|allow_\w+|use_\w+|skip_\w+|\w*_(timeout|retries|fallback|style_request|enabled|only|size|interval|base|factor|payload)|timeout)"
)
_ICEBERG = re.compile(
    r"type|uri|warehouse|namespace|(py-)?(catalog|io|location-provider)-impl|scope|audience|resource|oauth2-server-uri|auth\.type"
    r"|[\w.-]*(username|user|user-id)|prefix|echo|pool_pre_ping|init_catalog_tables|snapshot-loading-mode|view-endpoints-supported|ssl\..*"
    r"|rest\.(sigv4-enabled|signing-(region|name)|authorization-url|metrics-reporting-enabled|[\w.-]*timeout[\w.-]*)"
    r"|(s3|client|glue|dynamodb|adls|gcs|hdfs|hf|write|fs)\.[\w.-]*(endpoint|region|uri|url|host|port|user|kerberos_ticket|id|name|path|scheme|impl|"
    r"signer|provider|profile|arn|authority|location|project|bucket|access|type|mode|addressing|style|default|consistency|timeout|size)([._-]\w+)?"
    r"|header\.(content-type|accept|user-agent|x-iceberg-access-delegation|x-client-version)",
    re.IGNORECASE,
)
# Words with which Spark's own properties begin; other libraries in the JVM use words of their own. Values of a process's environment and of
# Hadoop may be anything.
_SPARK = re.compile(
    r"spark\.(acls|admin|api|app|archives|authenticate|barrier|blacklist|block|blockManager|broadcast|buffer|checkpoint|cleaner|closure"
    r"|connect|cores|decommission|default|deploy|driver|dynamicAllocation|event[lL]og|exclude\w*|executor|extraListeners|files?|graphx|hadoopRDD"
    r"|history|internal|io|jars|kryo\w*|kubernetes|launcher|local|locality|log|logConf|master|memory|metrics|modify|network|parallelism"
    r"|plugins|port|proxy|pyspark|python|r|rdd|reducer|redaction|resources?|rpc|scheduler|security|serializer|shuffle|speculation|sql"
    r"|stage|standalone|storage|streaming|submit|task|test|ui|unsafe|user|worker|yarn)(\..*)?"
    r"|spark\.hadoop\.[\w.-]*(impl|endpoint|region|enabled|size|type|mode|provider|path|dir|class|address|host|port|uri|name|id|algorithm|policy|codec)",
)
_KNOWN: Mapping[Key, re.Pattern[str]] = {
    ("kafka", "client"): _KAFKA,
    ("spark", "conf"): _SPARK,
    ("delta", "storage_options"): _DELTA,
    ("iceberg", "catalog"): _ICEBERG,
}
# Here users and other libraries add names of their own: one that is not known is only not shown, unless it looks like a secret.
_OPEN = ("spark", "conf")


def free_depth(path: Key) -> int | None:
    """Return of how many steps the name of the free table is that *path* is in, or would be; None if it is in none."""
    if path[:2] in {("kafka", "client"), ("spark", "conf")}:
        return 2
    if path[:1] == ("outputs",) and path[2:4] in _KNOWN:
        return 4
    return 3 if len(path) > 2 and (path[0], path[2]) in _KINDS_OF_FIELDS else None


def is_secret(key: Key) -> bool:
    """Return whether the name of a setting says that it is secret."""
    depth = free_depth(key)
    if depth == 3:
        return False
    # The name of an input or output is the user's.
    return is_secret_key(".".join(key[2:] if key[0] in ("inputs", "outputs", "references", "functions", "queries") else key))


def is_hidden(key: Key, value: object) -> bool:
    """Return whether *value* is not to be shown: its name says so, or it is in a free table under a name not known to be harmless."""
    if is_secret(key):
        return value not in (None, "")
    known = _names_known_at(key)
    return known is not None and not known.fullmatch(key[-1]) and not _HARMLESS.fullmatch(str(value).strip())


def is_refused(key: Key, value: object) -> bool:
    """Return whether *value* is refused where others could read it, because of its name or of what stands in it."""
    if is_secret(key):
        return isinstance(value, str | int | float) and not isinstance(value, bool) and value != ""
    if not isinstance(value, str):
        return False
    if broker_passwords(key, value):
        return True
    if is_hidden(key, value) and (key[:2] != _OPEN or looks_random(value)):
        return True
    return any(True for _ in secrets_in(value, is_address=is_address(key) or _names_known_at(key) is not None))


def broker_passwords(key: Key, value: object) -> list[str]:
    """Return the passwords that stand in the addresses of brokers, with a scheme before them or without."""
    return _BROKER_PASSWORD.findall(value) if key == BROKERS and isinstance(value, str) else []


def may_name_secret(key: Key) -> bool:
    """Return whether ``file:PATH`` and ``env:NAME`` are read as the value of *key*: it is a secret, or may be one for all that is known."""
    known = _names_known_at(key)
    return is_secret(key) or is_address(key) or (known is not None and not known.fullmatch(key[-1]))


def is_property(key: Key) -> bool:
    """Return whether *key* is in a free table: its value may be given by ``env:NAME``, while ``file:...`` may be a place that it names."""
    return _names_known_at(key) is not None


def is_address(key: Key) -> bool:
    """Return whether a setting says how a server is reached, perhaps with a password in it."""
    # Any store of an output may have one, those of installed packages too.
    return key[-2:] in SECRET_URLS or (len(key) == 4 and key[0] == "outputs" and key[-1] in ("url", "uri", "dsn"))


def _names_known_at(key: Key) -> re.Pattern[str] | None:
    depth = free_depth(key)
    return _KNOWN.get(key[depth - 2 : depth]) if depth is not None and len(key) > depth else None
