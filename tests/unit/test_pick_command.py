"""`prefillgate replayset pick`: a few cases of a large set, and why the others were left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefillgate.cli.main import main
from prefillgate.replay.pick import chosen_lines, pick
from prefillgate.replay.replay_set import load_replay_set


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def command(*arguments: str) -> tuple[int, str, str]:
        code = main(["replayset", "pick", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def chat(name: str, *contents: str, **more: Any) -> dict[str, Any]:
    roles = ("system", "user", "assistant", "user")
    said = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return line(name, "/v1/chat/completions", {"messages": said, **more})


def line(name: str, url: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"custom_id": name, "method": "POST", "url": url, "body": body}


def words(start: int, count: int) -> str:
    return " ".join(f"word{number}" for number in range(start, start + count))


def write(folder: Path, *lines: dict[str, Any]) -> str:
    file = folder / "set.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return str(file)


SYSTEM = words(100_000, 300)


def many(count: int) -> list[dict[str, Any]]:
    return [chat(f"c{number:02}", SYSTEM, words(1000 * number, 10 + number)) for number in range(count)]


def test_it_writes_lines_of_the_file_in_its_order_and_the_longest_is_among_them(run: Any, tmp_path: Path) -> None:
    lines = many(40)[::-1]
    source, out = write(tmp_path, *lines), tmp_path / "deep" / "out.jsonl"
    code, said, _ = run(source, "--n", "6", "-o", str(out))
    assert code == 0
    written = out.read_bytes().splitlines(keepends=True)
    originals = Path(source).read_bytes().splitlines(keepends=True)
    places = [originals.index(one) for one in written]
    assert len(places) == 6 and places == sorted(places) and 0 in places
    assert "chosen: 6 of 40 cases, by length in characters" in said
    assert "c39  (line 1; the longest, of 7 prompts" in said
    assert "       34  another of about their length was drawn" in said
    assert not list(out.parent.glob("*.partial"))
    assert len(load_replay_set(out).cases) == 6


def test_a_long_system_message_makes_no_two_prompts_alike(run: Any, tmp_path: Path) -> None:
    code, said, _ = run(write(tmp_path, *many(20)), "--n", "20", "-o", str(tmp_path / "out.jsonl"))
    assert code == 0
    assert "chosen: 20 of 20 cases" in said


def test_the_same_prompt_and_near_ones_are_counted_apart_and_the_longer_stays(run: Any, tmp_path: Path) -> None:
    long = words(0, 60)
    lines = [
        chat("near", SYSTEM, long),
        chat("longer", SYSTEM, f"{long} more"),
        chat("again", SYSTEM, long, temperature=1),
        chat("other", SYSTEM, words(500, 60)),
    ]
    out = tmp_path / "out.jsonl"
    code, said, _ = run(write(tmp_path, *lines), "-o", str(out), "--json")
    assert code == 0
    document = json.loads(said)
    assert document["not_chosen"] == {"same_prompt": 1, "near_duplicate": 1, "not_drawn": 0}
    assert {one["case_id"] for one in document["chosen"]} == {"longer", "other"}
    assert document["asked"] == 16 and document["cases"] == 4 and document["similarity_percent"] == 90
    assert document["unit"] == "characters" and document["seed"] == 0


def test_similarity_says_what_is_near(run: Any, tmp_path: Path) -> None:
    source = write(tmp_path, chat("a", "", words(0, 30)), chat("b", "", words(0, 29) + " else"))  # 25 of 27
    for percent, kept in (("92", 1), ("93", 2)):
        _, said, _ = run(source, "-o", str(tmp_path / "out.jsonl"), "--similarity", percent)
        assert f"chosen: {kept} of 2" in said
    assert "no more than 2 prompts differ: record or add other prompts" in said
    _, said, _ = run(source, "-o", str(tmp_path / "out.jsonl"))
    assert "no more than 1 prompts differ: a higher --similarity than 90 keeps more" in said


def test_equal_seeds_choose_equally_and_others_otherwise(run: Any, tmp_path: Path) -> None:
    source = write(tmp_path, *many(60))
    found = []
    for seed in ("0", "0", "1"):
        run(source, "--n", "5", "-o", str(tmp_path / "out.jsonl"), "--seed", seed)
        found.append((tmp_path / "out.jsonl").read_bytes())
    assert found[0] == found[1] != found[2]


def test_lengths_are_tokens_where_every_prompt_is_token_numbers(run: Any, tmp_path: Path) -> None:
    def tokens(name: str, count: int) -> dict[str, Any]:
        return line(name, "/v1/completions", {"prompt": list(range(count * 1000, count * 1000 + count))})

    source = write(tmp_path, tokens("short", 20), tokens("long", 90))
    _, said, _ = run(source, "-o", str(tmp_path / "out.jsonl"))
    assert "by length in tokens" in said
    assert "       90  long" in said
    mixed = [tokens("numbers", 90), line("text", "/v1/completions", {"prompt": words(0, 50)})]
    _, said, _ = run(write(tmp_path, *mixed), "-o", str(tmp_path / "out.jsonl"))
    assert "by length in characters" in said
    assert "      360  numbers" in said


def test_prompts_without_text_are_told_apart_by_their_digest(run: Any, tmp_path: Path) -> None:
    def image(name: str, url: str) -> dict[str, Any]:
        part = {"type": "image_url", "image_url": {"url": url}}
        return line(name, "/v1/chat/completions", {"messages": [{"role": "user", "content": [part]}]})

    lines = [image("a", "data:,1"), image("b", "data:,2"), image("c", "data:,1")]
    _, said, _ = run(write(tmp_path, *lines), "-o", str(tmp_path / "out.jsonl"))
    assert "chosen: 2 of 3 cases" in said


def test_a_system_message_alone_is_the_prompt(run: Any, tmp_path: Path) -> None:
    lines = [chat("a", words(0, 40)), chat("b", words(100, 40)), chat("c", words(0, 40) + " x", "")]
    _, said, _ = run(write(tmp_path, *lines), "-o", str(tmp_path / "out.jsonl"))
    assert "chosen: 2 of 3 cases" in said


def test_a_byte_order_mark_and_a_missing_line_end_are_no_part_of_a_line(run: Any, tmp_path: Path) -> None:
    rows = [json.dumps(one).encode() for one in many(2)]
    source = tmp_path / "set.jsonl"
    source.write_bytes(b"\xef\xbb\xbf" + rows[0] + b"\r\n" + rows[1])
    code, _, _ = run(str(source), "-o", str(tmp_path / "out.jsonl"))
    assert code == 0
    assert (tmp_path / "out.jsonl").read_bytes() == rows[0] + b"\r\n" + rows[1]


def test_a_set_that_lint_refuses_is_refused_and_nothing_is_written(run: Any, tmp_path: Path) -> None:
    source = write(tmp_path, chat("a", "", "x"), {"custom_id": "b"})
    code, _, error = run(source, "-o", str(tmp_path / "out.jsonl"))
    assert code == 2
    assert "set.jsonl:2: method: missing" in error
    assert not (tmp_path / "out.jsonl").exists()


def test_the_set_itself_is_never_written_over(run: Any, tmp_path: Path) -> None:
    source = write(tmp_path, *many(3))
    before = Path(source).read_bytes()
    code, _, error = run(source, "-o", source)
    assert code == 2 and "--output" in error
    assert Path(source).read_bytes() == before


def test_a_place_that_cannot_be_written_is_named(run: Any, tmp_path: Path) -> None:
    code, _, error = run(write(tmp_path, *many(3)), "-o", str(tmp_path / "set.jsonl" / "out"))
    assert code == 2
    assert "--output" in error and "cannot be written" in error


@pytest.mark.parametrize("what", ["changed", "gone", "broken"])
def test_a_file_that_changed_meanwhile_is_refused(what: str, tmp_path: Path) -> None:
    source = Path(write(tmp_path, *many(3)))
    picked = pick(source, 3, 0, 90)
    rows = source.read_text().splitlines(keepends=True)
    other = {"changed": json.dumps(chat("c01", "", "y")) + "\n", "gone": "", "broken": "{\n"}[what]
    source.write_text("".join(rows[:1]) + other)
    with pytest.raises(ValueError, match="the file changed while it was read"):
        list(chosen_lines(source, picked))
