"""Two workers, begun a second apart, collect the same tests by the same names."""

from __future__ import annotations

import gzip

import pytest

from tests.conftest import pytest_make_parametrize_id


@pytest.mark.parametrize("mtime", [1, 1_796_000_000])
def test_the_second_an_archive_was_made_in_is_in_no_name(mtime: int) -> None:
    assert pytest_make_parametrize_id(gzip.compress(b"{}", mtime=mtime), "data") == "data"


def test_the_hook_is_the_one_that_names_parameters(request: pytest.FixtureRequest) -> None:
    names = request.config.hook.pytest_make_parametrize_id
    assert names(config=request.config, val=b"\x1f\x8b\x00", argname="packed") == "packed"
    assert [names(config=request.config, val=plain, argname="data") for plain in (b"PK", b"", "text")] == [None] * 3
