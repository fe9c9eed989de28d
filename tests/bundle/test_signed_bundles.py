"""Signatures: by our own command and by the real openssl, both ways; what is not signed by the key given fails."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from prefillgate.bundle import content
from prefillgate.cli.errors import BadInput
from prefillgate.cli.export import command as export_command
from tests.support.bundles import Bundle, exported, invoke
from tests.support.programs import record_real_program

SIGNED = ("--signing-key",)


def openssl(*words: str | Path) -> str:
    """Run the real openssl."""
    version = subprocess.run(["openssl", "version"], capture_output=True, encoding="utf-8", check=True).stdout
    record_real_program("openssl", version.strip())
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def key_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """A new private key and its public half, as README makes them."""
    private, public = folder / f"{name}.pem", folder / f"{name}-public.pem"
    openssl("genpkey", "-algorithm", "ed25519", "-out", private)
    openssl("pkey", "-in", private, "-pubout", "-out", public)
    return private, public


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return key_pair(tmp_path, "mine")


@pytest.fixture
def signed(store: Path, tmp_path: Path, keys: tuple[Path, Path]) -> Bundle:
    return exported(store, tmp_path / "signed", "--signing-key", str(keys[0]))


def test_a_signed_bundle_is_the_same_by_its_key_and_openssl_says_so_too(
    signed: Bundle, keys: tuple[Path, Path]
) -> None:
    told = signed.verify("--public-key", str(keys[1]))
    assert told.code == 0 and "signed by the key given (SHA256:" in told.text
    given = ("-pubin", "-inkey", keys[1], "-rawin", "-in", signed.folder / content.MANIFEST)
    said = openssl("pkeyutl", "-verify", *given, "-sigfile", signed.folder / content.SIGNATURE)
    assert "Signature Verified Successfully" in said


def test_a_signature_made_by_openssl_is_taken(signed: Bundle, keys: tuple[Path, Path]) -> None:
    path = signed.folder / content.SIGNATURE
    path.unlink()
    openssl("pkeyutl", "-sign", "-inkey", keys[0], "-rawin", "-in", signed.folder / content.MANIFEST, "-out", path)
    assert signed.verify("--public-key", str(keys[1])).code == 0


def test_without_a_key_it_says_that_it_was_checked_against_none(signed: Bundle) -> None:
    told = signed.verify()
    assert told.code == 0 and "which was checked against no key" in told.text


def test_the_signature_of_another_is_refused(signed: Bundle, tmp_path: Path) -> None:
    told = signed.verify("--public-key", str(key_pair(tmp_path, "other")[1]))
    assert told.code == 10
    assert (
        "manifest.json: signed by the key" in told.text
        and "manifest.sig: not the signature of the key given" in told.text
    )


def test_a_signature_that_was_taken_away_is_missed_with_and_without_a_key(
    signed: Bundle, keys: tuple[Path, Path]
) -> None:
    (signed.folder / content.SIGNATURE).unlink()
    for options in ((), ("--public-key", str(keys[1]))):
        told = signed.verify(*options)
        assert told.code == 10 and told.first == "manifest.sig: the signature is missing"


def test_an_unsigned_bundle_fails_where_a_key_is_given(bundle: Bundle, keys: tuple[Path, Path]) -> None:
    told = bundle.verify("--public-key", str(keys[1]))
    assert told.code == 10 and told.first == "manifest.sig: the signature is missing"


def test_a_manifest_that_was_made_right_is_not_what_was_signed(signed: Bundle, keys: tuple[Path, Path]) -> None:
    def change(lines: list[Any], texts: list[Any]) -> None:
        for line in lines:
            if line["event"]["kind"] == "CellMeasured":
                line["event"]["cell"]["started_at"] += 1.0

    told = signed.forge(change)  # nothing but the signature can find this
    assert told.code == 10
    assert told.first == "manifest.sig: not the signature of the key that the manifest names over manifest.json"
    told = signed.verify("--public-key", str(keys[1]))
    assert told.code == 10 and told.first == "manifest.sig: not the signature of the key given over manifest.json"


def test_who_signs_a_forgery_with_a_key_of_his_own_is_found_by_the_key_given(
    store: Path, signed: Bundle, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    forged = exported(store, tmp_path / "forged", "--signing-key", str(key_pair(tmp_path, "his")[0]))
    assert forged.verify().code == 0
    assert forged.verify("--public-key", str(keys[1])).code == 10


@pytest.mark.parametrize("what", ["rsa", "passphrase", "public", "nonsense", "missing"])
def test_a_key_that_cannot_sign_is_refused_and_never_quoted(store: Path, tmp_path: Path, what: str) -> None:
    path = tmp_path / "key.pem"
    if what == "rsa":
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", path)
    elif what == "passphrase":
        openssl("genpkey", "-algorithm", "ed25519", "-aes256", "-pass", "pass:hidden", "-out", path)
    elif what == "public":
        shutil.copy(key_pair(tmp_path, "mine")[1], path)
    elif what == "nonsense":
        path.write_text("not-a-key-but-secret", encoding="utf-8")
    with pytest.raises(BadInput, match="--signing-key") as refused:
        invoke(export_command, str(store), "-o", str(tmp_path / "out"), "--signing-key", str(path))
    assert "secret" not in str(refused.value) and not (tmp_path / "out").exists()


def test_a_private_key_is_refused_where_the_public_one_is_asked_for(signed: Bundle, keys: tuple[Path, Path]) -> None:
    with pytest.raises(BadInput, match="this is a private key"):
        signed.verify("--public-key", str(keys[0]))
    with pytest.raises(BadInput, match="cannot be read"):
        signed.verify("--public-key", str(signed.folder / "nowhere.pem"))
