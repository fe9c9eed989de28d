"""From the names of variables and files to open options: what is taken, and what is said of what cannot be."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from prefillgate.api.access import Access, Held, HeldAccess
from prefillgate.engines.access import AccessError, access_findings, engine_options
from prefillgate.engines.header_file import read_header_file

SECRET = "sk-very-secret-0123456789"


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority (ca.pem), a client (client.pem, client.key, both.pem), another key (other.key)."""
    folder = tmp_path_factory.mktemp("pem")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    client, other = authority.issue_cert("client.example.com"), authority.issue_cert("other.example.com")
    client.cert_chain_pems[0].write_to_path(folder / "client.pem")
    client.private_key_pem.write_to_path(folder / "client.key")
    client.private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")
    other.private_key_pem.write_to_path(folder / "other.key")
    key = load_pem_private_key(client.private_key_pem.bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(SECRET.encode()))
    (folder / "locked.key").write_bytes(locked)
    return folder


def refusal(access: Access, **environment: str) -> str:
    """What is said of an access that cannot be used; never the secret."""
    with pytest.raises(AccessError) as caught:
        engine_options(access, None, environment)
    assert SECRET not in str(caught.value)
    return str(caught.value)


def context(access: Access) -> ssl.SSLContext:
    found = engine_options(access, None, {}).ssl_context
    assert found is not None
    return found


def test_an_access_that_asks_for_nothing_gives_plain_options() -> None:
    options = engine_options(Access(), "m", {"HTTP_PROXY": "http://127.0.0.1:1", "OPENAI_API_KEY": SECRET})
    assert (options.api_key, options.model, options.ssl_context, options.headers) == (None, "m", None, ())
    assert (options.proxy, options.proxy_headers) == (None, ())


def test_a_key_is_read_from_its_variable_without_the_line_end_of_a_file() -> None:
    assert engine_options(Access(api_key_variable="KEY"), None, {"KEY": f"{SECRET}\n"}).api_key == SECRET


def test_no_option_shows_a_secret_when_it_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text(f"X-Token: {SECRET}\nProxy-Authorization: Basic {SECRET}\n", encoding="utf-8")
    access = Access(api_key_variable="KEY", header_file=file, proxy="http://127.0.0.1:3128")
    options = engine_options(access, None, {"KEY": SECRET})
    assert options.headers == (("X-Token", SECRET),)
    assert options.proxy_headers == (("Proxy-Authorization", f"Basic {SECRET}"),)
    assert SECRET not in repr(options)


@pytest.mark.parametrize("value", [f"{SECRET} two", f"{SECRET}\nX: y", f"{SECRET}é", f"{SECRET}\x00"])
def test_a_key_that_no_header_can_carry_is_refused(value: str) -> None:
    said = refusal(Access(api_key_variable="KEY"), KEY=value)
    assert said == "API key: KEY holds what no HTTP header can carry (allowed: a word of ASCII characters)"


@pytest.mark.parametrize("environment", [{}, {"KEY": ""}, {"KEY": " \n"}])
def test_a_variable_that_holds_nothing_is_refused(environment: dict[str, str]) -> None:
    said = refusal(Access(api_key_variable="KEY"), **environment)
    assert said == "API key: KEY is not set in the environment (allowed: the name of a variable)"


def test_a_key_given_where_its_variable_belongs_is_not_repeated() -> None:
    assert refusal(Access(api_key_variable=SECRET)) == (
        "what is given as the variable of the API key is no name of one (allowed: the name of an environment variable, "
        "as LLM_KEY; never the key itself)"
    )
    with pytest.raises(AccessError) as caught:
        engine_options(Access(api_key_variable="hf_abcdefgh"), None, {})
    assert str(caught.value) == (
        "the variable named for the API key is not set (allowed: a variable's name, never the key)"
    )


def test_a_header_file_is_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_bytes(b"\xef\xbb\xbf# we\r\nX-Tenant: blue:green \r\n\r\nAuthorization:Basic abc=\r\nHost: a.b\r\n")
    assert read_header_file(file) == (("X-Tenant", "blue:green"), ("Authorization", "Basic abc="), ("Host", "a.b"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (SECRET, "not a header (allowed: `Name: value` in ASCII, or a # in front)"),
        (f"X Token: {SECRET}", "not a header (allowed: `Name: value` in ASCII, or a # in front)"),
        (f": {SECRET}", "not a header (allowed: `Name: value` in ASCII, or a # in front)"),
        (f" X-Token: {SECRET}", "not a header (allowed: `Name: value` in ASCII, or a # in front)"),
        ("X-Token:  ", "not a header (allowed: `Name: value` in ASCII, or a # in front)"),
        (f"X-Token: {SECRET}é", "not a header (allowed: `Name: value` in ASCII, or a # in front)"),
        (f"X-Token: {SECRET}\x07", "not a header (allowed: `Name: value` in ASCII, or a # in front)"),
        (f"x-first: {SECRET}", "this header stands on line 1 already (allowed: once)"),
    ],
)
def test_a_bad_line_of_a_header_file_is_named_by_its_number_and_never_quoted(
    tmp_path: Path, line: str, said: str
) -> None:
    file = tmp_path / "headers"
    file.write_text(f"X-First: 1\n\n{line}\n", encoding="utf-8")
    assert refusal(Access(header_file=file)) == f"{file}:3: {said}"


@pytest.mark.parametrize(
    "name",
    ["Content-Length", "transfer-encoding", "Content-Type", "Accept-Encoding", "Connection", "TE", "Expect", "Upgrade"],
)
def test_a_header_that_would_change_what_is_measured_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "headers"
    file.write_text(f"{name}: {SECRET}\n", encoding="utf-8")
    assert refusal(Access(header_file=file)).startswith(f"{file}:1: {name} is set by the gate itself (allowed: any ")


def test_a_header_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    assert refusal(Access(header_file=tmp_path / "no")).startswith(f"header file {tmp_path / 'no'} cannot be read: No ")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert refusal(Access(header_file=tmp_path / "bytes")) == f"header file {tmp_path / 'bytes'} is no text in UTF-8"


def test_two_authorizations_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text(f"authorization: Basic {SECRET}\n", encoding="utf-8")
    assert engine_options(Access(header_file=file), None, {}).headers == (("authorization", f"Basic {SECRET}"),)
    said = refusal(Access(header_file=file, api_key_variable="KEY"), KEY=SECRET)
    assert said == (
        f"header file {file} has an Authorization header, and KEY holds an API key too (allowed: one of the two)"
    )


def test_a_header_for_a_proxy_needs_one(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text(f"Proxy-Authorization: Basic {SECRET}\n", encoding="utf-8")
    assert refusal(Access(header_file=file)) == f"header file {file} has Proxy-Authorization, and no proxy is named"


@pytest.mark.parametrize(
    "proxy",
    [
        "127.0.0.1:3128",
        "https://p:3128",
        "socks5://p:1080",
        "http://p",
        "http://:3128",
        "http://p:3128/x",
        "http://p:x",
    ],
)
def test_a_proxy_that_is_no_http_proxy_is_refused(proxy: str) -> None:
    said = refusal(Access(proxy=proxy))
    assert said.startswith("proxy")
    assert said.endswith("(allowed: http://HOST:PORT)")


def test_credentials_in_a_proxy_s_address_are_refused_and_not_repeated() -> None:
    assert refusal(Access(proxy=f"http://me:{SECRET}@proxy.local:3128")) == (
        "proxy: credentials in an address would stand in the process list "
        "(allowed: http://HOST:PORT, and a line `Proxy-Authorization: Basic ...` in a header file)"
    )


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:3128", "http://[::1]:3128", "http://proxy.local:3128/"])
def test_a_proxy_is_taken_as_given(proxy: str) -> None:
    assert engine_options(Access(proxy=proxy), None, {}).proxy == proxy


def test_a_certificate_is_checked_unless_a_person_says_not_to(pem: Path) -> None:
    strict = context(Access(ca_file=pem / "ca.pem"))
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    named = context(Access(tls_server_name="llm.example.com"))
    assert (named.verify_mode, named.check_hostname) == (ssl.CERT_REQUIRED, True)
    loose = context(Access(insecure=True))
    assert (loose.verify_mode, loose.check_hostname) == (ssl.CERT_NONE, False)


def test_a_ca_file_is_trusted_instead_of_the_system(pem: Path) -> None:
    assert context(Access(ca_file=pem / "ca.pem")).cert_store_stats()["x509"] == 1


def test_a_client_certificate_is_taken_with_its_key_beside_it_or_in_it(pem: Path) -> None:
    assert context(Access(client_cert=pem / "client.pem", client_key=pem / "client.key"))
    assert context(Access(client_cert=pem / "both.pem"))


@pytest.mark.parametrize("name", ["client.key", "empty", "missing"])
def test_a_ca_file_without_a_certificate_is_refused(pem: Path, name: str) -> None:
    (pem / "empty").write_bytes(b"")
    said = refusal(Access(ca_file=pem / name))
    if name == "missing":
        assert said == f"CA file {pem / name} cannot be read: No such file or directory"
    else:
        assert said == f"CA file {pem / name} holds no certificate that can be read (allowed: certificates in PEM)"


def test_what_does_not_fit_a_client_certificate_is_named(pem: Path) -> None:
    cert = Access(client_cert=pem / "client.pem")
    assert refusal(Access(client_key=pem / "client.key")) == (
        f"client key {pem / 'client.key'}: no client certificate is named beside it"
    )
    assert refusal(cert) == f"{pem / 'client.pem'} holds no private key (name the file with the key as client key)"
    assert refusal(replace(cert, client_key=pem / "ca.pem")) == (
        f"{pem / 'ca.pem'} holds no private key (allowed: a private key in PEM)"
    )
    assert refusal(Access(client_cert=pem / "client.key")) == (
        f"client certificate {pem / 'client.key'} holds no certificate (allowed: a certificate in PEM)"
    )
    assert refusal(replace(cert, client_key=pem / "other.key")) == (
        f"{pem / 'other.key'}: the private key is not that of the client certificate {pem / 'client.pem'}"
    )
    assert refusal(replace(cert, client_key=pem / "locked.key")).startswith(
        f"{pem / 'locked.key'}: the private key is encrypted; a passphrase cannot be asked for "
        "(allowed: a key without one, as `openssl pkey -in locked.key -out plain.pem` writes it)"
    )
    broken = pem / "broken.key"
    broken.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", encoding="ascii")
    assert refusal(replace(cert, client_key=broken)) == (
        f"client certificate {pem / 'client.pem'} or its key in {broken} cannot be read (allowed: PEM)"
    )


@pytest.mark.parametrize("name", ["http://a", "a b", "...", "é.example.com"])
def test_a_server_name_that_is_none_is_refused(name: str) -> None:
    said = refusal(Access(tls_server_name=name))
    assert said == f"TLS server name {name!r} is no host name (allowed: one such as llm.example.com)"


def test_what_the_verdict_must_say_of_the_way_is_said_where_it_is_so() -> None:
    insecure, proxied = Access(insecure=True), Access(proxy="http://p:3128")
    assert access_findings(insecure, "https://a") == (
        "the server's certificate was not checked (--insecure): whoever answered may be another server",
    )
    assert access_findings(insecure, "http://a") == ()
    assert access_findings(proxied, "http://a") == (
        "requests went through the proxy http://p:3128: what it adds was measured too",
    )
    assert access_findings(Access(), "https://a") == ()


def held(pem: Path, **files: str) -> Access:
    """An access whose certificates and keys are in memory."""
    return Access(
        held=HeldAccess(**{name: Held(f"Secret {name}", (pem / file).read_bytes()) for name, file in files.items()})
    )


def test_a_key_in_memory_is_taken_without_the_line_end_of_a_secret_and_is_in_no_text() -> None:
    access = Access(held=HeldAccess(api_key=Held("Secret llm, key token", f"{SECRET}\n".encode())))
    options = engine_options(access, None, {})
    assert options.api_key == SECRET
    assert SECRET not in f"{access!r} {options!r} {access}"


@pytest.mark.parametrize("value", [b"", b" \n", b"two words", b"\xff\xfe", "schl\u00fcssel".encode()])
def test_a_key_in_memory_that_no_header_can_carry_is_refused_by_its_name(value: bytes) -> None:
    told = refusal(Access(held=HeldAccess(api_key=Held("Secret llm, key token", value))))
    assert told.startswith("API key: Secret llm, key token ")
    assert "two words" not in told


def test_a_key_both_named_and_in_memory_is_refused(tmp_path: Path) -> None:
    both = Access(api_key_variable="KEY", held=HeldAccess(api_key=Held("Secret llm", SECRET.encode())))
    assert refusal(both, KEY=SECRET) == "API key: KEY and Secret llm are given (allowed: one of the two)"
    headers = tmp_path / "headers"
    headers.write_text(f"Authorization: Bearer {SECRET}\n")
    twice = Access(header_file=headers, held=HeldAccess(api_key=Held("Secret llm", SECRET.encode())))
    assert "Secret llm holds an API key too" in refusal(twice)


def test_certificates_in_memory_do_what_those_in_files_do(pem: Path) -> None:
    trusted = context(held(pem, ca="ca.pem"))
    assert trusted.cert_store_stats()["x509"] == 1
    assert trusted.verify_mode is ssl.CERT_REQUIRED
    assert trusted.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
    assert context(held(pem, client_cert="client.pem", client_key="client.key"))
    assert context(held(pem, client_cert="both.pem"))
    mixed = held(pem, client_key="client.key")
    assert context(replace(mixed, client_cert=pem / "client.pem"))


def test_what_does_not_fit_a_certificate_in_memory_is_named(pem: Path) -> None:
    assert refusal(held(pem, ca="client.key")).startswith("Secret ca holds no certificate that can be read")
    assert refusal(held(pem, client_cert="client.key")).startswith("Secret client_cert holds no certificate (")
    assert refusal(held(pem, client_cert="client.pem")) == (
        "Secret client_cert holds no private key (name the one with the key as client key)"
    )
    assert refusal(held(pem, client_cert="client.pem", client_key="ca.pem")).startswith(
        "Secret client_key holds no private"
    )
    assert "is not that of the client certificate" in refusal(
        held(pem, client_cert="client.pem", client_key="other.key")
    )
    assert "Secret client_key: the private key is encrypted" in refusal(
        held(pem, client_cert="client.pem", client_key="locked.key")
    )
    assert "no client certificate is named beside it" in refusal(held(pem, client_key="client.key"))
    both = replace(held(pem, ca="ca.pem"), ca_file=pem / "ca.pem")
    assert refusal(both) == f"CA file {pem / 'ca.pem'} and Secret ca are given (allowed: one of the two)"


def test_a_client_key_in_memory_leaves_no_file(pem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert context(held(pem, client_cert="client.pem", client_key="client.key"))
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert "none can be written" in refusal(held(pem, client_cert="both.pem"))


def test_a_host_header_is_sent_as_named_once(tmp_path: Path) -> None:
    assert engine_options(Access(host_header="llm.example.com"), None, {}).headers == (("Host", "llm.example.com"),)
    assert (
        refusal(Access(host_header="a\r\nX-Evil: 1")) == "host header: not a header's value (allowed: printable ASCII)"
    )
    assert refusal(Access(host_header=" ")).startswith("host header: not a header's value")
    headers = tmp_path / "headers"
    headers.write_text("Host: other.example.com\n")
    assert "a host header is named beside it" in refusal(Access(header_file=headers, host_header="llm.example.com"))
