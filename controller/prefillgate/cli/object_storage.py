"""Bundles in object storage for commands: credentials from the environment, errors in the command line's two words."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from prefillgate.cli.errors import BadInput, CouldNotMeasure

if TYPE_CHECKING:
    from obstore.store import S3Store


@contextmanager
def in_objects(address: str, option: str) -> Iterator[Path]:
    """A folder to be filled, that is uploaded once it is whole. What is there already is refused before that."""
    from prefillgate.bundle.objects import refuse_existing, upload

    with _named(f"{option} {_without_user(address)}"), tempfile.TemporaryDirectory(prefix="prefillgate-") as name:
        store = _store(address)
        refuse_existing(store)
        yield Path(name)
        upload(store, Path(name))


@contextmanager
def copied(address: str) -> Iterator[tuple[Path, list[str]]]:
    """A copy of what is there, and the names of what is no file of a bundle."""
    from prefillgate.bundle.objects import download

    with tempfile.TemporaryDirectory(prefix="prefillgate-") as name:
        with _named(_without_user(address)):
            beside = download(_store(address), Path(name))
        yield Path(name), beside


def _without_user(address: str) -> str:
    """An address as it may be shown: credentials do not belong into one, and are not repeated."""
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _store(address: str) -> S3Store:
    from prefillgate.bundle.objects import open_objects

    return open_objects(address, os.environ, Path.home())


@contextmanager
def _named(what: str) -> Iterator[None]:
    from prefillgate.bundle.objects import AddressError, ObjectsError

    try:
        yield
    except AddressError as error:
        raise BadInput(f"{what}: {error}") from error
    except ObjectsError as error:
        raise CouldNotMeasure(f"{what}: {error}") from error
