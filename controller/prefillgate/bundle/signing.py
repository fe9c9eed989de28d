"""Ed25519 signatures over the manifest, with keys as openssl writes them (PEM)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

MAKE_KEY = "openssl genpkey -algorithm ed25519 -out signing.pem"
MAKE_PUBLIC = "openssl pkey -in signing.pem -pubout -out public.pem"
MAX_KEY_BYTES = 64 * 1024


class KeyUnusable(ValueError):
    """A key file cannot be used. The message never holds anything of it."""


def signing_key(path: Path) -> Ed25519PrivateKey:
    """The private key of a PEM file (PKCS8, no passphrase). Raises `KeyUnusable`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_read(path), password=None)
    except TypeError as error:
        raise KeyUnusable("the key has a passphrase (allowed: one without)") from error
    except (ValueError, UnsupportedAlgorithm):
        raise KeyUnusable(f"no private key in PEM (allowed: what `{MAKE_KEY}` writes)") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyUnusable(f"not an Ed25519 key (allowed: what `{MAKE_KEY}` writes)")
    return key


def public_key(path: Path) -> Ed25519PublicKey:
    """The public key of a PEM file. Raises `KeyUnusable`, for a private key too."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    data = _read(path)
    if b"PRIVATE KEY" in data:
        raise KeyUnusable(
            f"this is a private key, which nobody else should have (allowed: what `{MAKE_PUBLIC}` writes)"
        )
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyUnusable(f"no public key in PEM (allowed: what `{MAKE_PUBLIC}` writes)") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyUnusable(f"not an Ed25519 key (allowed: what `{MAKE_PUBLIC}` writes)")
    return key


def raw_hex(key: Ed25519PublicKey) -> str:
    """The 32 bytes of a public key in hex, as a manifest names its signer."""
    return key.public_bytes_raw().hex()


def fingerprint(key_hex: str) -> str:
    """SHA-256 of the key's 32 bytes, for a person to compare."""
    return "SHA256:" + hashlib.sha256(bytes.fromhex(key_hex)).hexdigest()


def is_signed(key_hex: str, manifest: bytes, signature: bytes) -> bool:
    """Whether `signature` is that key's over these bytes."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key_hex)).verify(signature, manifest)
    except (InvalidSignature, ValueError):
        return False
    return True


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_KEY_BYTES)
    except OSError as error:
        raise KeyUnusable(f"cannot be read: {error.strerror or error}") from error
