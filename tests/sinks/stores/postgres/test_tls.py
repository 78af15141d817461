"""PostgreSQL behind TLS: the server proves its name, the client its own, and what is wrong with either is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from support.certificates import Authority, Keys
from support.postgres_server import PostgresServer

from sinks.stores.base import Store, StoreContext, StoreError, Stream
from sinks.stores.registry import make_store
from tidegate.platform.settings.tables.stores.postgres import PostgresSettings

pytestmark = pytest.mark.heavy


@dataclass(frozen=True)
class Guarded:
    """A server that takes nobody without a certificate of its authority, and such a certificate of the user ``postgres``."""

    server: PostgresServer
    authority: Authority
    client: Keys
    folder: Path

    def store(self, host: str = "127.0.0.1", **settings: str) -> Store:
        """Return a store that trusts the authority and shows the certificate, if the settings do not say otherwise."""
        files = {"ca_file": self.authority.ca_file, "certificate_file": self.client.certificate_file, "key_file": self.client.key_file}
        given = {"url": self.server.url().replace("127.0.0.1", host), **{name: str(file) for name, file in files.items()}, **settings}
        context = StoreContext("rides", Stream("rides", "id", 1), (("car", "nvarchar(max)"),))
        return make_store("postgres", PostgresSettings.model_validate({name: value for name, value in given.items() if value}), context)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One server for this file."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    keys, client = authority.issue("server"), authority.issue("postgres")
    client.key_file.chmod(0o600)
    files = {"server.crt": keys.certificate_file, "server.key": keys.key_file, "root.crt": authority.ca_file}
    server = PostgresServer("ssl=on", "ssl_ca_file=root.crt", files=files)
    with psycopg.connect(server.url(), autocommit=True) as connection:
        (server.data / "pg_hba.conf").write_text("hostssl all all all cert\n")
        connection.execute("SELECT pg_reload_conf()")
    yield Guarded(server, authority, client, folder)
    server.stop()


def test_a_server_that_proves_its_name_is_written_to(guarded: Guarded) -> None:
    """With ``ca_file`` alone libpq verifies chain and name; the line is encrypted."""
    store = guarded.store()
    store.prepare()
    assert store.progress([0]) == {}
    files = {"sslcert": str(guarded.client.certificate_file), "sslkey": str(guarded.client.key_file)}
    with psycopg.connect(guarded.server.url(), **files) as connection:
        found = connection.execute(
            "SELECT ssl, client_dn FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name LIKE 'tidegate%'"
        ).fetchall()
    assert found == [(True, "/CN=postgres")]
    store.close()


def test_what_is_wrong_is_refused_in_words(guarded: Guarded) -> None:
    """Another authority; a certificate of another name; no certificate of the client's, or a key that others may read; no TLS at all."""
    other, open_key = Authority(guarded.folder, "other"), guarded.folder / "open.pem"
    open_key.write_bytes(guarded.client.key_file.read_bytes())
    open_key.chmod(0o644)
    for store, words in (
        (guarded.store(ca_file=str(other.ca_file)), "certificate verify failed"),
        (guarded.store("localhost"), "does not match host name"),
        (guarded.store(certificate_file="", key_file=""), "valid client certificate"),
        (guarded.store(key_file=str(open_key)), "private key file"),
        (guarded.store(url=f"{guarded.server.url()}?sslmode=disable"), "no pg_hba.conf entry"),
        (guarded.store(ca_file=str(guarded.folder / "absent.pem")), "root certificate file"),
    ):
        with pytest.raises(StoreError, match=words) as refused:
            store.prepare()
        assert refused.value.code == "TG-STORE-REFUSED"
        assert refused.value.fix
