"""A bundle in object storage: `s3://BUCKET/PREFIX`, by obstore (extra `s3`).

Credentials and endpoint are those of the usual AWS variables, or of a profile of `~/.aws`. The manifest is written
last, so that an upload that broke off is no bundle.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefillgate.api.errors import shown
from prefillgate.bundle import content

if TYPE_CHECKING:
    from obstore.store import S3Store

SCHEME = "s3://"
INSTALL = "the extra s3 is not installed: pip install 'prefillgate[s3]'"
_KNOWN = (*content.FILES, content.SIGNATURE, content.MANIFEST)  # in the order of writing
_CHUNK_BYTES = 8 * 1024 * 1024
_KEY = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_ROLE_PATHS = ("/latest/api/token", "/latest/meta-data/")  # where a machine in the cloud is asked for its own key
_PROFILE_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region")


class ObjectsError(Exception):
    """Object storage cannot do what was asked, or did not answer."""


class AddressError(ValueError):
    """An address, a profile or the installation is not what is needed."""


class BundleThere(AddressError):
    """A bundle, or something else, is there already."""


def is_address(text: str) -> bool:
    """Whether a place is in object storage."""
    return text.lower().startswith(SCHEME)


def open_objects(address: str, environment: Mapping[str, str], home: Path) -> S3Store:
    """The store at `s3://BUCKET/PREFIX`; nothing is asked of it yet. Raises `AddressError`."""
    bucket, _, prefix = address[len(SCHEME) :].partition("/")
    prefix = prefix.strip("/")
    parts = prefix.split("/")
    if not bucket or not prefix or "@" in bucket or any(part in ("", ".", "..") for part in parts):
        raise AddressError("no place for a bundle (allowed: s3://BUCKET/PREFIX, the key in AWS variables or a profile)")
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise AddressError(INSTALL) from error
    config: dict[str, Any] = _profile(environment, home)
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if endpoint:
        config["aws_endpoint"] = endpoint
    plain = (endpoint or "").lower().startswith("http://")
    try:
        return S3Store(
            bucket,
            prefix=prefix,
            config=config,  # type: ignore[arg-type]
            client_options={"timeout": "60s", "connect_timeout": "10s", "allow_http": plain},
            retry_config={"max_retries": 2},
        )
    except Exception as error:
        raise AddressError(_told(error)) from None


def _profile(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """Credentials and region of the profile of AWS_PROFILE (`default` without it), where no key is in a variable.

    Raises `AddressError` for a profile that was named and is not there, and for half a key.
    """
    if bool(environment.get(_KEY[0])) != bool(environment.get(_KEY[1])):
        there, missing = sorted(_KEY, key=lambda variable: not environment.get(variable))
        raise AddressError(f"{missing}: not set, and {there} is (allowed: both, or neither and a profile)")
    if environment.get("AWS_ACCESS_KEY_ID"):
        return {}
    name = environment.get("AWS_PROFILE")
    credentials = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials")
    settings = Path(environment.get("AWS_CONFIG_FILE") or home / ".aws" / "config")
    found: dict[str, str] = {}
    for path, section in ((settings, f"profile {name}" if name else "default"), (credentials, name or "default")):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise AddressError(f"{path}: cannot be read as a profile file ({type(error).__name__})") from None
        if parser.has_section(section):
            found.update({key: parser.get(section, key) for key in _PROFILE_KEYS if parser.has_option(section, key)})
    if name and "aws_access_key_id" not in found:
        raise AddressError(f"AWS_PROFILE: no access key of a profile {shown(name)} in {credentials}")
    if "region" in found:
        region = found.pop("region")
        if not environment.get("AWS_REGION") and not environment.get("AWS_DEFAULT_REGION"):
            found["aws_region"] = region
    return found


def names(store: S3Store) -> list[str]:
    """What stands under the prefix. Raises `ObjectsError`, and `AddressError` where there is no key to ask with."""
    import obstore

    try:
        return sorted(str(entry["path"]) for chunk in obstore.list(store) for entry in chunk)
    except Exception as error:
        told = _told(error)
        if any(path in told for path in _ROLE_PATHS):
            raise AddressError(
                f"no key: neither {' and '.join(_KEY)} nor AWS_PROFILE is set, and this machine has no role that gives"
                " one (allowed: both variables, or a profile)"
            ) from None
        raise ObjectsError(told) from None


def refuse_existing(store: S3Store) -> None:
    """Raise `BundleThere` unless nothing is there but what an upload that broke off left."""
    there = names(store)
    if content.MANIFEST in there:
        raise BundleThere("a bundle is there already (allowed: a prefix without one)")
    foreign = next((name for name in there if name not in _KNOWN), None)
    if foreign is not None:
        raise BundleThere(f"{shown(foreign)} is there already (allowed: a prefix with nothing under it)")


def upload(store: S3Store, folder: Path) -> None:
    """Every file of a bundle, the manifest last and only where none came meanwhile. Raises `ObjectsError`,
    `BundleThere`."""
    import obstore
    from obstore.exceptions import AlreadyExistsError

    refuse_existing(store)
    try:
        if not (folder / content.SIGNATURE).exists() and content.SIGNATURE in names(store):
            obstore.delete(store, content.SIGNATURE)  # of an upload that broke off
        for name in _KNOWN:
            if name != content.MANIFEST and (folder / name).exists():
                obstore.put(store, name, folder / name)
        obstore.put(store, content.MANIFEST, folder / content.MANIFEST, mode="create", use_multipart=False)
    except AlreadyExistsError:
        raise BundleThere("another bundle came to be there meanwhile") from None
    except (ObjectsError, AddressError):
        raise
    except Exception as error:
        raise ObjectsError(f"{_told(error)}; without {content.MANIFEST} what is there is no bundle") from None


def download(store: S3Store, folder: Path) -> list[str]:
    """Every file of a bundle into a folder; the names of what is there beside them. Raises `ObjectsError`."""
    import obstore

    there = names(store)
    try:
        for name in (name for name in _KNOWN if name in there):
            with (folder / name).open("wb") as file:
                for chunk in obstore.get(store, name).stream(min_chunk_size=_CHUNK_BYTES):
                    file.write(chunk)
    except OSError:
        raise
    except Exception as error:
        raise ObjectsError(_told(error)) from None
    return [name for name in there if name not in _KNOWN]


def _told(error: Exception) -> str:
    """The first line of an error of object storage: it names the object and never a key."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:1])[:400]}"
