"""TLS to the database is libpq's own: what the URL says is kept, a server that cannot prove itself is refused."""

import pytest
import trustme

from prefillgate.evidence import StoreAway, StoreError
from prefillgate.evidence.postgres import PostgresJournal
from tests.support.postgres import recorded, running_server


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def module_server(authority):
    """A server that speaks TLS with a certificate for localhost and no other name."""
    certificate = authority.issue_cert("localhost")
    with running_server("fsync=off") as server:
        server.give("server.crt", b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        server.give("server.key", certificate.private_key_pem.bytes())
        server.stop()
        server.settings.append("ssl=on")
        server.start()
        yield server


@pytest.fixture
def run(module_server, plan):
    """The URL of a run that is there."""
    url = f"{recorded(module_server).new_database()}?run=night"
    PostgresJournal.create(url, plan).close()
    return url


@pytest.fixture
def trusted(authority, tmp_path):
    path = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(path)
    return path


def speaks_tls(url):
    with PostgresJournal.open(url) as journal:
        row = journal._keeper.connection.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()
        assert len(journal.events()) == 1
        return row == (True,)


def test_the_mode_in_the_url_decides(run):
    assert speaks_tls(f"{run}&sslmode=require")
    assert not speaks_tls(f"{run}&sslmode=disable")


def test_a_server_is_checked_against_the_authority_that_the_url_names(run, trusted, tmp_path):
    checked = run.replace("127.0.0.1", "localhost") + f"&hostaddr=127.0.0.1&sslmode=verify-full&sslrootcert={trusted}"
    assert speaks_tls(checked)
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)
    with pytest.raises(StoreError, match=r"the server's certificate was refused.*certificate verify failed") as refused:
        PostgresJournal.open(checked.replace(str(trusted), str(stranger)))
    assert not isinstance(refused.value, StoreAway)
    with pytest.raises(StoreError, match=r'"localhost" does not match host name "127\.0\.0\.1"'):
        PostgresJournal.open(f"{run}&sslmode=verify-full&sslrootcert={trusted}")
