"""Where the journals of a controller's replays are."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefillgate.api.store_address import PostgresUrl
from prefillgate.app.run_stores import RunStores, told

FOLDER, DATABASE = Path("stores"), PostgresUrl("postgresql://gate@db.example:5432/evidence?sslmode=require")


def test_a_folder_has_a_file_for_each_run_under_namespace_and_line() -> None:
    assert RunStores(FOLDER).of("prod", "llm.web", "r-1") == FOLDER / "prod" / "llm.web" / "r-1.db"


def test_a_database_has_a_run_of_that_name_with_its_end_kept_whole() -> None:
    address = RunStores(DATABASE).of("prod", "llm", "r-1")
    assert address == PostgresUrl(DATABASE.server, "prod.llm.r-1")
    long = RunStores(DATABASE).of("n" * 63, "l" * 253, "u" * 36)
    assert isinstance(long, PostgresUrl) and long.run == "n" * 63 + "." + "u" * 36


@pytest.mark.parametrize("name", ["..", "a/b", "", "\u00fcnl\u00fc", "x" * 254, "a b", "a\n", "-a", "C:"])
@pytest.mark.parametrize("root", [FOLDER, DATABASE])
def test_a_name_that_could_lead_elsewhere_is_none(root: Path | PostgresUrl, name: str) -> None:
    for names in ((name, "llm", "r"), ("prod", name, "r"), ("prod", "llm", name)):
        with pytest.raises(ValueError, match="cannot name a store"):
            RunStores(root).of(*names)


def test_a_run_s_name_is_shorter_than_a_line_s() -> None:
    assert RunStores(FOLDER).of("prod", "x" * 253, "r" * 64)
    with pytest.raises(ValueError, match="cannot name a store"):
        RunStores(FOLDER).of("prod", "x", "r" * 65)


def test_what_is_told_of_a_store_names_nobody_who_logs_in() -> None:
    assert told(FOLDER / "a.db") == str(FOLDER / "a.db")
    assert told(RunStores(DATABASE).of("prod", "llm", "r")) == (
        "postgresql://db.example:5432/evidence?sslmode=require&run=prod.llm.r"
    )
