"""Which settings are secret, by the names in the documentation of each library below: librdkafka, Spark, Hadoop and its object stores."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

import pyspark
import pytest

from ordering.errors import SettingError
from tidegate.cli.config import as_toml
from tidegate.secret_masking import MASK, SPARK_REDACTION, is_secret_key, mask_setting, scrub
from tidegate.settings.load import load

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
