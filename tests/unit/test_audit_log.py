"""`prefillgate audit` over logs of other tools: arms, labels, files, what was not read, outcomes from outputs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from prefillgate.cli import audit_log
from prefillgate.cli.audit_large import LargeLog
from prefillgate.cli.main import main
from prefillgate.core.cells import Status
from prefillgate.importers import registry
from tests.support.cell_logs import fresh, line, story
from tests.support.tab_log import MARK, TabLog

GOOD, BAD = "The change is sound and well tested. VERDICT: LGTM", "VERDICT: LGTM"


@pytest.fixture(autouse=True)
def tab_logs_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "FORMATS", (*registry.FORMATS, TabLog()))


def tabs(*rows: str) -> bytes:
    return MARK + "".join("\t".join(row.split("|")) + "\n" for row in rows).encode()


def audited(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """The answer, and what was said beside it."""
    assert main(["audit", *arguments, "--json"]) == code
    captured = capsys.readouterr()
    return (json.loads(captured.out) if captured.out else {}), captured.err


def written(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_a_log_that_names_no_arm_is_the_candidates_alone_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "x.log", tabs(f"-|a|0|1000|{GOOD}", f"-|a|996|1000|{GOOD}", f"-|b|0|1000|{GOOD}"))
    told, said = audited(capsys, path)
    assert told["arms"]["baseline"] is None
    assert (told["arms"]["candidate"]["requests"], told["arms"]["candidate"]["prefills"]) == (3, 2)
    assert "no record names an arm: all are taken as the candidate's alone; --baseline FILE gives the other arm" in said
    assert told["log"]["arms_told"] is False
    assert (told["log"]["formats"], told["log"]["requests"]) == ({"a tab log": 1}, 3)


def test_a_file_of_the_baseline_is_the_other_arm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (written(tmp_path / name, tabs(f"-|a|0|9|{GOOD}")) for name in ("one", "two"))
    told, said = audited(capsys, one, "--baseline", two, "--baseline", one)
    assert [told["arms"][arm]["requests"] for arm in ("baseline", "candidate")] == [2, 1]
    assert "no record names an arm" not in said
    assert told["log"]["arms_told"] is True
    alone, _ = audited(capsys, "--baseline", two)
    assert [alone["arms"][arm]["requests"] for arm in ("baseline", "candidate")] == [1, 0]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("torn", [b'{"arm": "candidate", "case_', b'{"arm": "candidate", "case_id": "\xe2\x82', b"{"])
def test_a_torn_last_line_of_a_cell_log_is_counted_and_named(
    torn: bytes, large: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "MOST_BYTES_IN_MEMORY", 10 if large else 10**6)
    whole = "".join(f"{json.dumps(line(fresh(case)))}\n" for case in "ab").encode()
    one, two = (written(tmp_path / name, whole + torn) for name in ("one", "two"))
    told, said = audited(capsys, one, two)
    assert told["arms"]["candidate"]["requests"] == told["log"]["requests"] == 4
    assert told["log"]["unread"] == [{"why": "a torn last line", "count": 2, "first": [f"{one}:3", f"{two}:3"]}]
    assert "2 lines or records not used: 2 a torn last line (first: " in said
    assert audited(capsys, written(tmp_path / "ended", whole + torn + b"\n"), code=2)[1].count("ended:3") == 1
    amid = written(tmp_path / "amid", torn + b"\n" + whole)
    assert audited(capsys, amid, "--format", "cells", code=2)[1].count("amid:1") == 1
    for wrong in (b"x", b'{"arm": "canary"}', b'{"arm": "candidate", "arm": "candidate"}', b"}{"):
        assert audited(capsys, written(tmp_path / "wrong", whole + wrong), code=2)[1].count("wrong:3") == 1
    alone = written(tmp_path / "alone", torn)
    assert "no cell in it" in audited(capsys, alone, "--format", "cells", code=2)[1]


def test_a_cell_log_that_names_another_arm_than_it_was_given_for_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = written(tmp_path / "cells", json.dumps(line(fresh("a"))).encode())
    assert audited(capsys, "--baseline", cells, code=2) == (
        {},
        f"prefillgate: error: {cells}:1: arm: a record of the candidate in a log given for the baseline "
        "(allowed: records of the baseline, or that name no arm)\n",
    )
    told, _ = audited(capsys, cells, "--baseline", written(tmp_path / "t", tabs(f"-|a|0|9|{GOOD}")))
    assert [told["arms"][arm]["requests"] for arm in ("baseline", "candidate")] == [1, 1]


@pytest.mark.parametrize(
    ("options", "baseline", "candidate", "left"),
    [
        (["--baseline-label", "old", "--candidate-label", "new"], 1, 2, 2),
        (["--baseline-label", "old"], 1, 3, 1),
        (["--candidate-label", "new"], 2, 2, 1),
    ],
)
def test_labels_tell_the_arms_apart(
    options: list[str], baseline: int, candidate: int, left: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["old|a|0|9|x", "new|a|0|9|x", "new|b|0|9|x", "third|b|0|9|x", "-|b|0|9|x"]
    path = written(tmp_path / "x", tabs(*rows))
    told, said = audited(capsys, path, *options)
    assert [told["arms"][arm]["requests"] for arm in ("baseline", "candidate")] == [baseline, candidate]
    assert f"{left} records are labelled for neither arm and left out" in said
    assert told["log"]["left_out"] == left
    assert told["log"]["labels"] == {"old": 1, "new": 2, "third": 1}


def test_labels_without_arms_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told, said = audited(capsys, written(tmp_path / "x", tabs("old|a|0|9|x", "new|a|0|9|x", "new|a|9|9|x")))
    assert "labels seen: new (2), old (1); --baseline-label and --candidate-label tell two arms apart" in said
    assert told["arms"]["candidate"]["prefills"] == 2


def test_what_two_labels_asked_was_prefilled_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One from the cache of a server does not ride on the prefill of another."""
    told, _ = audited(capsys, written(tmp_path / "x", tabs("old|a|0|9|x", "new|a|9|9|x")))
    assert (told["arms"]["candidate"]["copies"], told["arms"]["candidate"]["orphans"]) == (0, 1)


def test_a_label_that_no_record_bears_is_refused_with_those_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "x", tabs("old|a|0|9|x", "new|a|0|9|x"))
    for option in ("--baseline-label", "--candidate-label"):
        _, said = audited(capsys, path, option, "gone", code=2)
        assert f'{option}: no record is labelled "gone" (allowed: new, old)' in said


def test_what_was_not_read_is_counted_by_kind_with_its_first_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"-|a|0|9|{GOOD}", *["x"] * 5, "x|y"]
    path = written(tmp_path / "x", tabs(*rows))
    told, said = audited(capsys, path)
    first = [f"{path}:{number}" for number in (3, 4, 5)]
    assert told["log"]["unread"] == [
        {"why": "not five columns but 1", "count": 5, "first": first},
        {"why": "not five columns but 2", "count": 1, "first": [f"{path}:8"]},
    ]
    note = (
        f"6 lines or records not used: 5 not five columns but 1 (first: {', '.join(first)}); 1 not five columns but 2"
    )
    assert note in said
    assert any(note in each for each in told["notes"])


def test_a_log_of_which_nothing_could_be_used_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, said = audited(capsys, written(tmp_path / "x.log", tabs("x")), code=2)
    assert "x.log: no request in it could be used: 1 lines or records not used: 1 not five columns but 1" in said
    _, said = audited(capsys, written(tmp_path / "y.log", tabs()), code=2)
    assert "y.log: no request in it could be used: it holds none" in said


def test_what_a_log_cannot_hold_is_said_with_the_flag_that_would_give_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told, said = audited(capsys, written(tmp_path / "x", tabs("-|a|0|9|x")))
    assert "this log does not hold: the processed tokens; --verbose-tabs would give it" in said
    assert "this log does not hold: when requests ended\n" in said
    assert told["log"]["absent"] == [
        {"what": "the processed tokens", "flags": ["--verbose-tabs"]},
        {"what": "when requests ended", "flags": []},
    ]


def test_gzip_and_several_formats_are_one_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = json.dumps(line(fresh("a"))).encode()
    packed = [
        written(tmp_path / "a.gz", gzip.compress(cells)),
        written(tmp_path / "b", gzip.compress(tabs("-|b|0|9|x"))),
    ]
    told, _ = audited(capsys, *packed)
    assert told["arms"]["candidate"]["prefills"] == 2
    assert told["log"]["formats"] == {"prefillgate's cell log": 1, "a tab log": 1}
    _, said = audited(capsys, written(tmp_path / "c", gzip.compress((cells + b"\n") * 3000)[:-9]), code=2)
    assert "cannot be read to its end" in said


def test_a_format_is_asked_for_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "x", tabs("-|a|0|9|x").removeprefix(MARK))
    assert "nothing recognises its content" in audited(capsys, path, code=2)[1]
    assert audited(capsys, path, "--format", "tabs")[0]["log"]["requests"] == 1
    assert ":1: not JSON" in audited(capsys, path, "--format", "cells", code=2)[1]
    _, said = audited(capsys, path, "--format", "pdf", code=2)
    assert '--format: "pdf" is not known (allowed: cells, ' in said
    assert "tabs" in said


def test_columns_are_named_for_formats_that_take_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "x", tabs("-|a|0|9|x"))
    assert audited(capsys, path, "--column", "label=prompt")[0]["log"]["labels"] == {"a": 1}
    assert '--column: "shape" is no field' in audited(capsys, path, "--column", "shape=x", code=2)[1]
    cells = written(tmp_path / "cells", json.dumps(line(fresh("a"))).encode())
    assert "--column: a cell log has the names it has" in audited(capsys, cells, "--column", "bad=b", code=2)[1]
    for wrong in ("label", "=x", "label="):
        assert "allowed: FIELD=NAME" in audited(capsys, path, "--column", wrong, code=2)[1]
    twice = audited(capsys, path, "--column", "label=a", "--column", "label=b", code=2)[1]
    assert "--column label: given twice" in twice


def policy(path: Path, *checks: str) -> str:
    listed = "".join(f"    - {check}\n" for check in checks)
    path.write_text(
        "apiVersion: prefillgate.io/v1alpha1\nkind: PromotionPolicy\nmetadata:\n  name: own\nspec:\n"
        f"  marginPercent: 10\n  checks:\n{listed}",
        encoding="utf-8",
    )
    return str(path)


def test_outcomes_come_from_the_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "x", tabs(f"-|a|0|9|{GOOD}", f"-|b|0|9|{BAD}", "-|c|0|9|-"))
    plain, _ = audited(capsys, path)
    assert plain["arms"]["candidate"]["request_interval"] is None
    told, said = audited(capsys, path, "--checks", "standard")
    assert (told["arms"]["candidate"]["bad_requests"], told["arms"]["candidate"]["bad_prefills"]) == (1, 1)
    assert "2 outputs judged by --checks" in said
    assert "1 records hold no output: --checks says nothing of them" in said
    words, _ = audited(capsys, path, "--checks", policy(tmp_path / "p.yaml", "{type: MinWords, minWords: {words: 50}}"))
    assert words["arms"]["candidate"]["bad_requests"] == 2


def test_an_answer_cut_short_is_bad_only_where_the_policy_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "x", tabs("-|a|0|9|Words and more words…"))
    assert audited(capsys, path, "--checks", "standard")[0]["arms"]["candidate"]["bad_requests"] == 0
    cut = policy(tmp_path / "p.yaml", "{type: Cut}")
    assert audited(capsys, path, "--checks", cut)[0]["arms"]["candidate"]["bad_requests"] == 1


def test_an_output_that_cannot_be_judged_leaves_its_outcome_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = policy(tmp_path / "p.yaml", "{type: Cel, cel: {expression: 'int(content) > 3'}}")
    told, said = audited(capsys, written(tmp_path / "x", tabs("-|a|0|9|no number")), "--checks", own)
    assert told["arms"]["candidate"]["request_interval"] is None
    assert "1 outputs could not be judged (cel: " in said


def test_checks_that_start_programs_or_ask_models_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "x", tabs("-|a|0|9|x"))
    own = policy(tmp_path / "p.yaml", "{type: Exec, name: mine, exec: {arguments: [sh]}}")
    _, said = audited(capsys, path, "--checks", own, code=2)
    assert "check mine: Exec starts a program or asks a model, which is not done here" in said
    left = policy(tmp_path / "q.yaml", "{type: EqualToBaseline}", "{type: NotEmpty}")
    assert "equal_to_baseline needs more than the output" in audited(capsys, path, "--checks", left)[1]
    none = policy(tmp_path / "r.yaml", "{type: EqualToBaseline}")
    assert "no check is left to make" in audited(capsys, path, "--checks", none, code=2)[1]
    assert "nosuch" in audited(capsys, path, "--checks", "nosuch", code=2)[1]


def test_each_label_is_restated_where_no_arms_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "x", tabs("old|a|0|9|x", "new|a|0|9|x", "new|a|9|9|x"))
    told, _ = audited(capsys, path)
    assert [(each["label"], each["requests"], each["prefills"]) for each in told["labels"]] == [
        ("old", 1, 1),
        ("new", 2, 1),
    ]
    assert audited(capsys, path, "--baseline-label", "old")[0]["labels"] == []
    one = written(tmp_path / "y", tabs("old|a|0|9|x"))
    assert audited(capsys, one)[0]["labels"] == []
    main(["audit", path])
    assert "new: 0 of 2 bad by request, 0 of 1 bad by proven prefill; 1 prefill." in capsys.readouterr().out
    main(["audit", path, "--markdown"])
    assert "| new | 0 of 2 bad | unknown |" in capsys.readouterr().out
    many = written(tmp_path / "z", tabs(*(f"l{number}|a|0|9|x" for number in range(14))))
    main(["audit", many])
    assert "and 2 more labels" in capsys.readouterr().out


def test_a_log_too_large_for_memory_is_judged_from_disk_to_the_same_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = json.dumps(line(fresh("a", status=Status.INVALID)) | {"http_status": 503}) + "\n"
    told = "".join(json.dumps(line(each)) + "\n" for each in story())
    path = written(tmp_path / "x", (told + busy * 3).encode())
    small, _ = audited(capsys, path)
    seen: list[int] = []
    monkeypatch.setattr(audit_log, "MOST_IN_MEMORY", 50)
    judge = LargeLog.judge
    monkeypatch.setattr(LargeLog, "judge", lambda self, *more: (seen.append(1), judge(self, *more))[1])
    large, _ = audited(capsys, path)
    assert (large, seen) == (small, [1])
    assert large["invalid"]["candidate"] == 3
    assert large["reason"] == "ReplicateDue"
