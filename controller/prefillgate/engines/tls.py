"""The TLS side of an `Access`: whom to trust, who we are, which name the certificate must bear."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from prefillgate.api.access import Access


class AccessError(ValueError):
    """A variable or a file that an `Access` names cannot be used. The message names it and what is allowed."""


class _NamedContext(ssl.SSLContext):
    """Asks for, and expects, one name whatever the address says: directly, and through a proxy's tunnel."""

    server_name: str

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_side, self.server_name, session)


def tls_context(access: Access) -> ssl.SSLContext | None:
    """The context that `access` asks for, None where it says nothing of TLS. Raises `AccessError`."""
    if access.client_key is not None and access.client_cert is None:
        raise AccessError(f"client key {access.client_key}: no client certificate is named beside it")
    told = (access.ca_file, access.client_cert, access.tls_server_name)
    if not access.insecure and all(value is None for value in told):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if access.tls_server_name is not None:
        context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
        context.server_name = _checked_name(access.tls_server_name)
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _trust(context, access.ca_file)
    if access.client_cert is not None:
        _show(context, access.client_cert, access.client_key)
    return context


def _checked_name(name: str) -> str:
    if not name.isascii() or not all(c.isalnum() or c in "-._:" for c in name) or not name.strip("."):
        raise AccessError(f"TLS server name {name!r} is no host name (allowed: one such as llm.example.com)")
    return name


def _trust(context: ssl.SSLContext, ca_file: Path | None) -> None:
    if ca_file is None:
        context.load_default_certs()
        return
    # Who names a file trusts what is in it: also a server's own certificate, also an authority made before Python
    # 3.13 asked for its key usage. Without this a file would do on one Python and not on the next.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    read_file(ca_file, "CA file")
    try:
        context.load_verify_locations(cafile=ca_file)
        found = context.cert_store_stats()["x509"]
    except ssl.SSLError:
        found = 0
    if not found:
        raise AccessError(f"CA file {ca_file} holds no certificate that can be read (allowed: certificates in PEM)")


def _show(context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    """Load the client's certificate and key. Every way in which they do not fit has its own words."""
    certificate, secret = read_file(cert, "client certificate"), cert
    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        raise AccessError(f"client certificate {cert} holds no certificate (allowed: a certificate in PEM)")
    if key is not None:
        secret, certificate = key, read_file(key, "client key")
    if b"PRIVATE KEY-----" not in certificate:
        beside = " (name the file with the key as client key)" if key is None else " (allowed: a private key in PEM)"
        raise AccessError(f"{secret} holds no private key{beside}")

    def refuse(*_: Any) -> str:
        raise AccessError(
            f"{secret}: the private key is encrypted; a passphrase cannot be asked for "
            f"(allowed: a key without one, as `openssl pkey -in {secret.name} -out plain.pem` writes it)"
        )

    try:
        context.load_cert_chain(cert, key, refuse)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise AccessError(f"{secret}: the private key is not that of the client certificate {cert}") from error
        raise AccessError(f"client certificate {cert} or its key in {secret} cannot be read (allowed: PEM)") from error


def read_file(path: Path, what: str) -> bytes:
    """The bytes of a file that an `Access` names, `what` in words. Raises `AccessError`, never quoting it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise AccessError(f"{what} {path} cannot be read: {error.strerror or type(error).__name__}") from error
