"""The TLS side of an `Access`: whom to trust, who we are, which name the certificate must bear."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefillgate.api.access import Access, Held, HeldAccess


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


@dataclass(frozen=True, slots=True)
class _Pem:
    """Certificates or a key: from a file, or held in memory (`path` None)."""

    called: str  # with what it is, as an error names it
    name: str
    data: bytes = field(repr=False)
    path: Path | None = None


def _pem(what: str, path: Path | None, held: Held | None) -> _Pem | None:
    """What was named of the two. Raises `AccessError`."""
    if path is not None and held is not None:
        raise AccessError(f"{what} {path} and {held.name} are given (allowed: one of the two)")
    if held is not None:
        return _Pem(held.name, held.name, held.value)
    return None if path is None else _Pem(f"{what} {path}", str(path), read_file(path, what), path)


def tls_context(access: Access) -> ssl.SSLContext | None:
    """The context that `access` asks for, None where it says nothing of TLS. Raises `AccessError`."""
    held = access.held or HeldAccess()
    if access.client_key is not None and access.client_cert is None and held.client_cert is None:
        raise AccessError(f"client key {access.client_key}: no client certificate is named beside it")
    if held.client_key is not None and access.client_cert is None and held.client_cert is None:
        raise AccessError(f"{held.client_key.name}: a client key, and no client certificate is named beside it")
    told = (access.ca_file, held.ca, access.client_cert, held.client_cert, access.tls_server_name)
    if not access.insecure and all(value is None for value in told):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if access.tls_server_name is not None:
        context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
        context.server_name = _checked_name(access.tls_server_name)
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _trust(context, _pem("CA file", access.ca_file, held.ca))
    certificate = _pem("client certificate", access.client_cert, held.client_cert)
    if certificate is not None:
        _show(context, certificate, _pem("client key", access.client_key, held.client_key))
    return context


def _checked_name(name: str) -> str:
    if not name.isascii() or not all(c.isalnum() or c in "-._:" for c in name) or not name.strip("."):
        raise AccessError(f"TLS server name {name!r} is no host name (allowed: one such as llm.example.com)")
    return name


def _trust(context: ssl.SSLContext, authorities: _Pem | None) -> None:
    if authorities is None:
        context.load_default_certs()
        return
    # Who names a file trusts what is in it: also a server's own certificate, also an authority made before Python
    # 3.13 asked for its key usage. Without this a file would do on one Python and not on the next.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    try:
        if authorities.path is not None:
            context.load_verify_locations(cafile=authorities.path)
        else:
            context.load_verify_locations(cadata=authorities.data.decode("ascii", "replace"))
        found = context.cert_store_stats()["x509"]
    except ssl.SSLError:
        found = 0
    if not found:
        raise AccessError(f"{authorities.called} holds no certificate that can be read (allowed: certificates in PEM)")


def _show(context: ssl.SSLContext, cert: _Pem, key: _Pem | None) -> None:
    """Load the client's certificate and key. Every way in which they do not fit has its own words."""
    secret = cert if key is None else key
    if b"-----BEGIN CERTIFICATE-----" not in cert.data:
        raise AccessError(f"{cert.called} holds no certificate (allowed: a certificate in PEM)")
    if b"PRIVATE KEY-----" not in secret.data:
        one = "file" if cert.path is not None else "one"
        beside = f" (name the {one} with the key as client key)" if key is None else " (allowed: a private key in PEM)"
        raise AccessError(f"{secret.name} holds no private key{beside}")

    def refuse(*_: Any) -> str:
        written = "" if secret.path is None else f", as `openssl pkey -in {secret.path.name} -out plain.pem` writes it"
        raise AccessError(
            f"{secret.name}: the private key is encrypted; a passphrase cannot be asked for "
            f"(allowed: a key without one{written})"
        )

    try:
        with _as_file(cert) as cert_path, _as_file(secret) as key_path:
            context.load_cert_chain(cert_path, None if key is None else key_path, refuse)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise AccessError(
                f"{secret.name}: the private key is not that of the client certificate {cert.name}"
            ) from error
        raise AccessError(
            f"client certificate {cert.name} or its key in {secret.name} cannot be read (allowed: PEM)"
        ) from error


@contextmanager
def _as_file(pem: _Pem) -> Iterator[Path]:
    """A path to it. OpenSSL's binding loads keys from files alone: what is held is one for a moment, for us to read."""
    if pem.path is not None:
        yield pem.path
        return
    try:
        folder = tempfile.TemporaryDirectory(prefix="prefillgate-")
    except OSError as error:
        raise AccessError(
            f"{pem.name}: a certificate is loaded from a temporary file, and none can be written: "
            f"{error.strerror or type(error).__name__} (allowed: a folder in memory as TMPDIR)"
        ) from error
    with folder as name:
        path = Path(name) / "held.pem"
        path.write_bytes(pem.data)
        yield path


def read_file(path: Path, what: str) -> bytes:
    """The bytes of a file that an `Access` names, `what` in words. Raises `AccessError`, never quoting it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise AccessError(f"{what} {path} cannot be read: {error.strerror or type(error).__name__}") from error
