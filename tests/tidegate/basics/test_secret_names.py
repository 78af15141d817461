"""Which settings are secret, by the names in the documentation of each library below: librdkafka, Spark, Hadoop and its object stores."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

import pyspark
import pytest

from ordering.errors import SettingError
from tidegate.basics.secret_masking import MASK, SPARK_REDACTION, is_secret_key, mask_setting, scrub
from tidegate.platform.settings.load import load
from tidegate.tools.commands.config import as_toml

ACCOUNT, BUCKET = "datafile.dfs.core.windows.net", "my-path"

SECRET = {
    "librdkafka": (
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl_key",
        "ssl.keystore.password",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.a.property.of.the.next.version",
    ),
    "Kafka's Java clients": ("sasl.jaas.config", "ssl.keystore.key", "ssl.truststore.password"),
    "schema registries": ("basic.auth.user.info", "bearer.auth.token"),
    "Spark": (
        "spark.authenticate.secret",
        "spark.ssl.keyPassword",
        "spark.ssl.ui.keyStorePassword",
        "spark.ssl.trustStorePassword",
        "spark.kubernetes.authenticate.submission.oauthToken",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.executorEnv.HADOOP_CREDSTORE_PASSWORD",
    ),
    "hadoop-aws": (
        "fs.s3a.access.key",
        "fs.s3a.secret.key",
        "fs.s3a.session.token",
        "fs.s3a.session.key",
        "fs.s3a.encryption.key",
        "fs.s3a.server-side-encryption.key",
        "fs.s3a.server-side-encryption-key",
        "fs.s3a.proxy.password",
        f"fs.s3a.bucket.{BUCKET}.secret.key",
        f"fs.s3a.bucket.{BUCKET}.encryption.key",
        "fs.s3n.awsSecretAccessKey",
    ),
    "hadoop-azure": (
        "fs.azure.account.key",
        f"fs.azure.account.key.{ACCOUNT}",
        "fs.azure.account.key.datafile",
        f"fs.azure.sas.container.{ACCOUNT}",
        "fs.azure.sas.container.my-path",
        "fs.azure.sas.fixed.token",
        f"fs.azure.sas.fixed.token.{ACCOUNT}",
        "fs.azure.account.oauth2.client.secret",
        f"fs.azure.account.oauth2.client.secret.{ACCOUNT}",
        "fs.azure.account.oauth2.user.password",
        "fs.azure.account.oauth2.refresh.token",
        "fs.azure.encryption.encoded.client-provided-key",
        "fs.azure.encryption.encoded.client-provided-key-sha",
        "fs.adl.oauth2.credential",
        "fs.adl.oauth2.refresh.token",
        "eventhubs.connectionString",
    ),
    "gcs-connector": (
        "fs.gs.auth.service.account.private.key",
        "fs.gs.auth.client.secret",
        "fs.gs.auth.refresh.token",
        "fs.gs.encryption.key",
        "fs.gs.encryption.key.hash",
        "fs.gs.proxy.password",
    ),
    "as people write them": ("ssl.key.pass", "ssl.keystore.pass", "db.pwd", "keyPass", "passwrod", "api_key", "private_key"),
}
PLAIN = {
    "librdkafka": (
        "sasl.username",
        "sasl.mechanism",
        "ssl.key.location",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.metadata.authentication.type",
        "sasl.oauthbearer.assertion.algorithm",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds",
    ),
    "Spark": ("spark.authenticate", "spark.io.encryption.enabled", "spark.io.encryption.keySizeBits", "spark.network.crypto.keyLength"),
    "hadoop-aws": ("fs.s3a.aws.credentials.provider", "fs.s3a.endpoint", "fs.s3a.encryption.algorithm", f"fs.s3a.bucket.{BUCKET}.region"),
    "hadoop-azure": (
        "fs.azure.account.auth.type",
        "fs.azure.account.oauth2.client.id",
        "fs.azure.account.oauth2.client.endpoint",
        "fs.azure.sas.token.provider.type",
        "fs.azure.sas.expiry.period",
        "fs.azure.secure.mode",
    ),
    "gcs-connector": ("fs.gs.auth.type", "fs.gs.auth.service.account.json.keyfile", "fs.gs.encryption.algorithm", "fs.gs.project.id"),
    "our own": ("key", "over", "partition", "offset", "redis.key_file", "inputs.a.key", "kafka.bootstrap"),
}


def named(table: dict[str, tuple[str, ...]]) -> list[str]:
    """Return all names of a table, those of Hadoop also as Spark's settings have them."""
    return [
        prefix + name
        for names in table.values()
        for name in names
        for prefix in ("", "spark.hadoop.")
        if not prefix or name.startswith("fs.")
    ]


@pytest.mark.parametrize("name", named(SECRET))
def test_a_secret_is_known_by_its_name(name: str) -> None:
    """It is shown by no command, refused where others can read it, and masked in Spark's own logs."""
    assert is_secret_key(name)
    assert mask_setting(name, "canary") == MASK
    # Java's expressions and Python's agree in what is used here. Spark's default covers what is misspelled no better.
    assert re.search(SPARK_REDACTION, name) or name == "passwrod"
    with pytest.raises(SettingError) as refusal:
        load(None, {"spark.conf": f'{{"{name}": "canary-value"}}'}, env={})
    assert refusal.value.code == "TG-SETTING-SECRET"
    assert "canary" not in str(refusal.value)


@pytest.mark.parametrize("name", named(PLAIN))
def test_what_is_no_secret_stays_readable(name: str) -> None:
    """Users, places, kinds: what an operator looks for."""
    assert not is_secret_key(name)


def test_every_name_that_hadoop_hides_is_hidden_here() -> None:
    """Its own list of sensitive names, from the release that Spark brings, but for three that are no secrets."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    properties = ElementTree.fromstring(zipfile.ZipFile(jar).read("core-default.xml"))
    listed = {each.findtext("name"): each.findtext("value") or "" for each in properties}["hadoop.security.sensitive-config-keys"].split()
    own = "hadoop.security.sensitive-config-keys"
    # An algorithm, a context, and whole families whose secret members are among the names above.
    plain = {own, "fs.s3a.encryption.algorithm", "fs.s3a.encryption.context"}
    families = {"fs.azure.account.key.*", "fs.azure.oauth2.*", "fs.adl.oauth2.*", "fs.gs.encryption.*", "fs.gs.proxy.*", "fs.gs.auth.*"}
    members = [name for pattern in families for name in named(SECRET) if re.search(pattern, name)]
    assert len({pattern for pattern in families for name in members if re.search(pattern, name)}) >= len(families) - 1
    examples = [pattern.replace(".*", ".some").removesuffix("$") for pattern in listed if pattern not in plain | families]
    assert examples
    assert [name for name in examples if not is_secret_key(name)] == []


def test_options_of_a_jvm_hide_their_secrets() -> None:
    """Their setting has no secret name, but what stands in it may have."""
    options = "-Xss4m -Djavax.net.ssl.trustStorePassword=canary-1 -Dother.secret='canary 2' -Duser.timezone=UTC"
    settings = load(None, {"spark.conf": f'{{"spark.driver.extraJavaOptions": "{options}"}}'}, env={})
    shown = as_toml(settings.origins())
    assert "canary" not in shown
    assert "-Duser.timezone=UTC" in shown
    assert "canary" not in scrub(options)
    assert settings.spark.properties()["spark.driver.extraJavaOptions"] == options


def test_the_redaction_is_an_expression_for_java_too() -> None:
    """Spark compiles it at its start: nothing in it is Python's alone."""
    assert "(?P" not in SPARK_REDACTION


# ----- secrets that show themselves, and what stands in free tables

CANARY = "canary-7Xq"
TOKEN = "c4naryT0kenOfAWebh00k"
SHOWN = {
    "a parameter of Redis's URL": ("redis.url", f"redis://h/0?password={CANARY}"),
    "a parameter of PostgreSQL's URL": ("outputs.o.postgres.url", f"postgresql://h/d?user=u&password={CANARY}"),
    "a password with a slash and an at sign": ("redis.url", f"redis://u:{CANARY}@h/0"),
    "a token as the user": ("outputs.o.http.url", f"https://{TOKEN}@h/x"),
    "the token of a webhook": ("outputs.o.http.url", f"https://hooks/services/T0AB1/B0CD2/{TOKEN}"),
    "the token of a bot, behind its number": ("outputs.o.http.url", f"https://h/bot110201543:{TOKEN}/sendMessage"),
    "a token with an ending": ("outputs.o.http.url", f"https://h/hooks/{TOKEN}.json"),
    "a token as a parameter of a step": ("outputs.o.http.url", f"https://h/hooks;v={TOKEN}/x"),
    "a signature": ("outputs.o.http.url", f"https://h/flow?sp=run&sig={CANARY}"),
    "a key of a web service": ("outputs.o.http.url", f"https://h/api?code={CANARY}"),
    "a header of a catalog": ("outputs.o.iceberg.catalog.header.Authorization", f"Bearer {CANARY}"),
    "any header of a catalog": ("outputs.o.iceberg.catalog.header.X-Gate", CANARY),
    "a catalog in a database": ("outputs.o.iceberg.catalog.uri", f"postgresql+psycopg2://u:{CANARY}@h/d"),
    "a key of Azure's storage": ("outputs.o.delta.storage_options.AZURE_STORAGE_MASTER_KEY", CANARY),
    "a signature of Azure's storage": ("outputs.o.delta.storage_options.AZURE_STORAGE_SAS_KEY", f"sv=1&sig={CANARY}"),
    "an option that nobody knows": ("outputs.o.delta.storage_options.AWS_SOMETHING_NEW", CANARY),
    "a property of the next version": ("kafka.client.sasl.something.new", CANARY),
    "a library in the JVM": ("spark.conf.spark.redis.auth", CANARY),
    "a URL for the JVM": ("spark.conf.spark.sql.catalog.d.url", f"jdbc:postgresql://h/d?user=u&password={CANARY}"),
    "a connection string for the JVM": ("spark.conf.spark.eventhubs", f"Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey={CANARY}"),
    "pairs of libpq": ("spark.conf.spark.sql.catalog.d.options", f"host=h user=u password = '{CANARY}'"),
    "a token for a process": ("spark.conf.spark.executorEnv.GATE", TOKEN),
}
TABLES = {"postgres": 'mode = "append"', "http": 'secret = "env:SIGNED"', "iceberg": 'table = "a.b"', "delta": 'path = "d"'}


def table_of(setting: str) -> tuple[str, dict[str, str]]:
    """The rest of the output that a setting needs, and its environment."""
    store = setting.split(".")[2] if setting.startswith("outputs.") else ""
    return f'[outputs.o]\ntopic = "o"\n[outputs.o.{store}]\n{TABLES[store]}\n' if store else "", {"SIGNED": f"whsec_{'unresolved' * 4}"}


@pytest.mark.parametrize("why", SHOWN)
def test_a_secret_in_a_value_is_refused_in_a_file_and_shown_nowhere(why: str, tmp_path: Path) -> None:
    """Written out in the file it is refused; from the environment it is taken, and no command shows it, nor any message that cites it."""
    setting, value = SHOWN[why]
    text, env = table_of(setting)
    file = tmp_path / "tidegate.toml"
    file.write_text(text)
    with pytest.raises(SettingError) as refusal:
        load(file, {setting: value}, env=env)
    assert "TG-SETTING-SECRET" in str(refusal.value) or refusal.value.code == "TG-SETTING-SECRET"
    assert CANARY not in str(refusal.value)
    assert TOKEN not in str(refusal.value)
    shown = as_toml(load(file, {setting: "env:GIVEN"}, env={**env, "GIVEN": value}).origins())
    assert MASK in shown
    assert CANARY not in shown
    assert TOKEN not in shown
    cited = scrub(f'could not connect: connection to "{value}" failed: {{"url": "{value}"}} (near {CANARY!r} {TOKEN!r})')
    assert not [secret for secret in (CANARY, TOKEN) if secret in value and secret in cited]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("outputs.o.http.url", "https://h/hooks/v2/rides-per-minute?region=eu-central-1&since=2024"),
        ("outputs.o.http.url", "https://d41d8cd98f00b204e980.example:8443/hooks"),
        ("outputs.o.iceberg.catalog.s3.region", "eu-central-1"),
        ("outputs.o.iceberg.catalog.py-io-impl", "pyiceberg.io.pyarrow.PyArrowFileIO"),
        ("outputs.o.iceberg.catalog.warehouse", "s3://lake/house"),
        ("outputs.o.iceberg.catalog.ssl.cabundle", "/etc/ca.pem"),
        ("outputs.o.delta.storage_options.AWS_ENDPOINT_URL", "http://minio:9000"),
        ("outputs.o.delta.storage_options.aws_virtual_hosted_style_request", "false"),
        ("outputs.o.delta.storage_options.AWS_S3_LOCKING_PROVIDER", "dynamodb"),
        ("outputs.o.delta.storage_options.azure_storage_account_name", "lake"),
        ("kafka.client.client.rack", "eu-central-1a"),
        ("kafka.client.ssl.ca.location", "/etc/ca.pem"),
        ("spark.conf.spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog"),
        ("spark.conf.spark.hadoop.fs.s3a.endpoint", "http://minio:9000"),
        ("spark.conf.spark.mine.size", "512m"),
    ],
)
def test_what_is_known_to_be_harmless_in_a_free_table_is_taken_and_shown(setting: str, value: str, tmp_path: Path) -> None:
    """An operator looks for it."""
    text, env = table_of(setting)
    file = tmp_path / "tidegate.toml"
    file.write_text(text)
    assert value in as_toml(load(file, {setting: value}, env=env).origins())


def test_a_property_of_the_jvm_that_nobody_knows_is_taken_and_not_shown() -> None:
    """Users give names of their own there: the value may be anything."""
    settings = load(None, {"spark.conf": '{"spark.innocent": "hunter"}'}, env={})
    assert settings.spark.properties()["spark.innocent"] == "hunter"
    assert "hunter" not in as_toml(settings.origins())


def test_names_that_users_choose_make_nothing_secret(tmp_path: Path) -> None:
    """An input called tokens, and a field called password, are names like others."""
    file = tmp_path / "tidegate.toml"
    file.write_text('[inputs.tokens]\ntopic = "secret.tokens"\n[inputs.tokens.fields]\npassword = "nvarchar(max)"\n')
    shown = as_toml(load(file, env={}).origins())
    assert 'password = "nvarchar(max)"' in shown
    assert 'topic = "secret.tokens"' in shown


@pytest.mark.parametrize(
    "text",
    [
        f"could not translate host name: host=h port=5432 user=u password={CANARY} dbname=d",
        f"ERROR connecting to jdbc:sqlserver://h;user=u;password={CANARY};encrypt=true",
        f"headers = {{'Authorization': 'Bearer {CANARY}', 'x': 'y'}}",
        f"Authorization: Basic {CANARY}",
        f'{{"sasl.password": "{CANARY}", "other": 1}}',
        f"GET https://h/x?a=b&access_token={CANARY}&c=d -> 403",
        f"AccountKey={CANARY};EndpointSuffix=core.windows.net",
    ],
)
def test_a_message_that_cites_a_secret_nobody_has_read_is_masked(text: str) -> None:
    """It came into the process by another way: as a file of a client, or as part of a longer text."""
    assert CANARY not in scrub(text)
    assert MASK in scrub(text)


def test_masking_takes_time_in_proportion_to_the_text() -> None:
    """A log event may cite a payload of megabytes, written by whoever wants to hold up the job."""
    for text in ("a" * 2_000_000, "a." * 1_000_000, "a=" * 1_000_000, "'" * 2_000_000, "://" * 600_000, "authorization " * 150_000):
        started_s = time.process_time()
        scrub(text)
        assert time.process_time() - started_s < 10, text[:20]
