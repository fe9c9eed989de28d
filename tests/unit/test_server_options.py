"""Every option of a server, on every side it can be given for: it reaches that side and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from prefillgate.api.access import Access
from prefillgate.cli.run import command
from prefillgate.cli.server_options import access_of, engine_of, model_of

ARMS = ("baseline", "candidate")
SIDES = (*ARMS, "gateway")
VALUES = {
    "api-key-env": ("api_key_variable", "SOME_KEY"),
    "header-file": ("header_file", Path("headers")),
    "ca-file": ("ca_file", Path("ca.pem")),
    "client-cert": ("client_cert", Path("client.pem")),
    "client-key": ("client_key", Path("client.key")),
    "tls-server-name": ("tls_server_name", "inner.example"),
    "insecure": ("insecure", True),
    "proxy": ("proxy", "http://127.0.0.1:3128"),
}


def options_of(*words: str) -> dict[str, object]:
    return dict(command.make_context("run", list(words)).params)


def words_for(prefix: str, name: str, value: object) -> list[str]:
    flag = f"--{prefix}-{name}" if prefix else f"--{name}"
    return [flag] if value is True else [flag, str(value)]


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("side", SIDES)
def test_an_option_of_one_side_is_its_own_and_nobody_else_s(side: str, name: str) -> None:
    field, value = VALUES[name]
    options = options_of(*words_for(side, name, value))
    for other in SIDES:
        known = {key: given for key, given in options.items() if other != "gateway" or key.startswith("gateway_")}
        expected = Access(**{field: value}) if other == side else Access()
        assert access_of(known, other) == expected


@pytest.mark.parametrize("name", VALUES)
def test_an_option_for_all_reaches_both_arms_and_the_one_of_an_arm_wins(name: str) -> None:
    field, value = VALUES[name]
    options = options_of(*words_for("", name, value))
    assert [access_of(options, arm) for arm in ARMS] == [Access(**{field: value})] * 2
    if value is not True:
        other = type(value)("another.one" if name != "proxy" else "http://127.0.0.1:9")
        both = options_of(*words_for("", name, value), *words_for("candidate", name, other))
        assert getattr(access_of(both, "baseline"), field) == value
        assert getattr(access_of(both, "candidate"), field) == other


@pytest.mark.parametrize("arm", ARMS)
def test_model_and_engine_are_asked_of_one_arm_or_of_both(arm: str) -> None:
    other = ARMS[1 - ARMS.index(arm)]
    one = options_of(f"--{arm}-model", "m-1", f"--{arm}-engine", "llama.cpp")
    assert (model_of(one, arm), engine_of(one, arm)) == ("m-1", "llama.cpp")
    assert (model_of(one, other), engine_of(one, other)) == (None, None)
    both = options_of("--model", "m-2", "--engine", "openai-compatible")
    assert [(model_of(both, side), engine_of(both, side)) for side in ARMS] == [("m-2", "openai-compatible")] * 2


def test_what_an_option_does_not_say_is_taken_from_what_is_known() -> None:
    known = Access(api_key_variable="FROM_FILE", ca_file=Path("file.pem"))
    options = options_of("--candidate-ca-file", "option.pem")
    assert access_of(options, "candidate", known) == Access(api_key_variable="FROM_FILE", ca_file=Path("option.pem"))


def test_help_tells_the_options_of_each_side_in_one_line() -> None:
    text = " ".join(CliRunner().invoke(command, ["--help"], terminal_width=1000).output.split())
    common = "-model, -engine, -api-key-env, -header-file, -ca-file, -client-cert, -client-key, -tls-server-name, "
    for arm in ARMS:
        assert f"--{arm}-... Options of a server for the {arm} alone: {common}-insecure, -proxy." in text
        assert f"--{arm}-ca-file" not in text
    gateway = common.replace("-engine, ", "")
    assert f"--gateway-... Options of a server for the gateway alone: {gateway}-insecure, -proxy." in text
    for name in VALUES:
        assert f" --{name} " in text
