"""What a container starts: behind shells, wrappers, modules and variables, and what of it only a shell could tell."""

from __future__ import annotations

import contextlib
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillgate.profiles.launch import LONGEST_INNER, MOST_SHELLS, expand, read_launch
from prefillgate.profiles.shell import LONGEST_EXPANDED, LONGEST_SCRIPT, ShellProblem, read_script
from tests.support.manifests import LLAMA_IMAGE, SGLANG_IMAGE, VLLM_IMAGE, llama, profile, values

SH = ["sh", "-c"]
SEVERAL = "an engine is started more than once: the first one's settings are told, the others stand in the start script"


@pytest.mark.parametrize(
    ("command", "args", "engine", "words"),
    [
        ([], ["-m", "a"], "llama-server", ["-m", "a"]),
        (["/app/llama-server"], ["-m", "a"], "llama-server", ["-m", "a"]),
        (["llama-server.exe", "-m", "a"], [], "llama-server", ["-m", "a"]),
        (["vllm", "serve"], ["org/m", "-tp", "2"], "vllm", ["org/m", "-tp", "2"]),
        (["python3", "-m", "vllm.entrypoints.openai.api_server"], ["--model", "m"], "vllm", ["--model", "m"]),
        (["python", "-m", "vllm.entrypoints.cli.main", "serve"], ["m"], "vllm", ["m"]),
        (["python3", "-m", "sglang.launch_server"], ["--tp", "2"], "sglang", ["--tp", "2"]),
        (["sglang", "serve"], ["--model-path", "m"], "sglang", ["--model-path", "m"]),
        (["/usr/bin/tini", "--"], ["vllm", "serve", "m"], "vllm", ["m"]),
        (["numactl", "-N", "0", "llama-server", "-m", "a"], [], "llama-server", ["-m", "a"]),
        (["env", "A=b", "llama-server", "-m", "a"], [], "llama-server", ["-m", "a"]),
        (SH, ["llama-server -m a"], "llama-server", ["-m", "a"]),
        (["/bin/bash", "-lc"], ["exec vllm serve m -tp 2"], "vllm", ["m", "-tp", "2"]),
        (["bash", "-euo", "pipefail", "-c", "vllm serve m"], [], "vllm", ["m"]),
        (
            ["sh", "-ec", "set -x; cd /x && exec llama-server \\\n  -m a \\\n  -c 1"],
            [],
            "llama-server",
            ["-m", "a", "-c", "1"],
        ),
        (["sh", "-c", 'exec llama-server "$@"', "--"], ["-m", "a b"], "llama-server", ["-m", "a b"]),
        (SH, ["M='/m/a b'; llama-server -m \"$M\""], "llama-server", ["-m", "/m/a b"]),
        (SH, ["F='-c 1 -np 2'; llama-server $F"], "llama-server", ["-c", "1", "-np", "2"]),
        (SH, ["llama-server -c ${CTX:-8192} -np ${NP-1}"], "llama-server", ["-c", "8192", "-np", "1"]),
        (SH, ["if true; then llama-server -m a; fi"], "llama-server", ["-m", "a"]),
        (SH, ["llama-server -m a 2>&1 | tee /x.log"], "llama-server", ["-m", "a"]),
        (SH, ["# vllm serve no\nvllm serve m # vllm serve n"], "vllm", ["m"]),
        (SH, ["echo 'vllm serve no' && vllm serve m"], "vllm", ["m"]),
        (SH, ["python -c 'print(1)'\r\nvllm serve m \\\r\n -tp 2"], "vllm", ["m", "-tp", "2"]),
        (["tini", "-g", "--", "sh", "-c"], ["exec llama-server -m a"], "llama-server", ["-m", "a"]),
        (["/usr/bin/env", "bash", "-c", "llama-server -m a"], [], "llama-server", ["-m", "a"]),
        (["env", "CTX=1", "sh", "-c", "llama-server -c $CTX"], [], "llama-server", ["-c", "1"]),
        (["dumb-init", "bash", "-lc", "vllm serve m -tp $0", "2"], [], "vllm", ["m", "-tp", "2"]),
        (["numactl", "--interleave=all", "bash", "-c"], ["llama-server -m a"], "llama-server", ["-m", "a"]),
        (["own-launcher", "--fast", "sh", "-c", "llama-server -m a"], [], "llama-server", ["-m", "a"]),
        (["own-launcher", "sh", "-c", "own", "llama-server", "-m", "a"], [], "llama-server", ["-m", "a"]),
        (["own-launcher", "--shell", "sh", "-c", "x"], [], None, ["--shell", "sh", "-c", "x"]),
        (["llama-server", "-m", "sh", "-c", "8192"], [], "llama-server", ["-m", "sh", "-c", "8192"]),
        (["python3", "-u", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"], [], "vllm", ["--model", "m"]),
        (SH, ["exec tini -- bash -c 'exec llama-server -m a'"], "llama-server", ["-m", "a"]),
        (SH, ["export A=1; B=2 bash -c 'llama-server -c $A -np $B'"], "llama-server", ["-c", "1", "-np", "2"]),
        (SH, ["bash -c 'bash -c \"llama-server -m a\"'"], "llama-server", ["-m", "a"]),
        (SH, ["pkill llama-server; exec llama-server -m a"], "llama-server", ["-m", "a"]),
        (SH, ["command -v vllm serve && vllm serve m"], "vllm", ["m"]),
        (SH, ["llama-server --version && llama-server -m a"], "llama-server", ["-m", "a"]),
        (["my-server"], ["--x"], None, ["--x"]),
        (SH, ["my-server --x"], None, []),
    ],
)
def test_the_engine_and_its_arguments_are_found(
    command: list[str], args: list[str], engine: str | None, words: list[str]
) -> None:
    image = LLAMA_IMAGE if not command else "registry.example/own:1"
    launch = read_launch(command, args, image, {})
    assert (launch.engine, launch.words) == (engine, words)


@pytest.mark.parametrize(
    ("image", "engine"),
    [
        (LLAMA_IMAGE, "llama-server"),
        (VLLM_IMAGE, "vllm"),
        (SGLANG_IMAGE, "sglang"),
        ("kserve/huggingfaceserver:v0.15-gpu", "vllm"),
        ("registry.example/team/llama-cpp@sha256:0", "llama-server"),
        ("registry.example/vllm/team/proxy:1", None),
        ("nginx", None),
        ("", None),
    ],
)
def test_an_image_tells_the_engine_where_no_command_does(image: str, engine: str | None) -> None:
    assert read_launch([], ["--x", "1"], image, {}).engine == engine


def test_a_wrapper_in_a_shell_makes_no_other_profile() -> None:
    direct = profile(LLAMA_IMAGE, command=["llama-server", "-m", "a.gguf", "-c", "8192"])
    for script in ("llama-server -m a.gguf -c 8192", "exec llama-server \\\n -c 8192 --model=a.gguf # said"):
        assert profile(LLAMA_IMAGE, command=["bash", "-lc", script]).digest == direct.digest
    sets = profile(LLAMA_IMAGE, command=["sh", "-c", "ulimit -l unlimited; llama-server -m a.gguf -c 8192"])
    assert sets.digest != direct.digest and values(sets)["start-script"] == "ulimit -l unlimited"


def test_variables_are_put_in_as_kubernetes_and_shells_do() -> None:
    env = [
        {"name": "TP", "value": "4"},
        {"name": "ARGS", "value": "--enforce-eager --block-size $(TP)"},
        {"name": "LATER", "value": "$(LAST)"},
        {"name": "LAST", "value": "1"},
    ]
    found = profile(VLLM_IMAGE, "m", "-tp", "$(TP)", "--x", "$$(TP)", "--y", "$(NOWHERE)", "--z", "$(LATER)", env=env)
    told = values(found)
    assert (told["tp_size"], told["x"], told["y"], told["z"]) == ("4", "$(TP)", "$(NOWHERE)", "$(LAST)")
    assert found.notes == ("variable NOWHERE is not known here and stays as written",)
    shell = profile(VLLM_IMAGE, "vllm serve m -tp ${TP} $ARGS --y $NOWHERE '$TP'", command=SH, env=env)
    told = values(shell)
    assert (told["tp_size"], told["block_size"], told["enforce-eager"], told["y"]) == (
        "4",
        "4",
        "on",
        "'$NOWHERE' '$TP'",
    )
    assert shell.notes == ("variable NOWHERE is not known here and stays as written",)


def test_variables_that_refer_to_each_other_end() -> None:
    env = [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "$(A)$(A)"}, {"name": "C", "value": "$(C)"}]
    told = values(llama("--x", "$(A) $(B) $(C)", "--fit", "off", env=env))
    assert told["x"] == "$(B) $(B)$(B) $(C)"


def test_what_a_script_gives_the_engine_as_variables_counts() -> None:
    script = "export LLAMA_ARG_CTX_SIZE=4096 CUDA_VISIBLE_DEVICES=0; LOCAL=1; GGML_X=2 llama-server -ngl ${LOCAL}"
    told = values(profile(LLAMA_IMAGE, script, command=SH))
    assert told == {"n_ctx": "4096", "env CUDA_VISIBLE_DEVICES": "0", "env GGML_X": "2", "gpu-layers": "1"}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("llama-server -m $(cat /m/name)", "of the start script: a command's output stands in it"),
        ("llama-server -m `cat /m/name`", "of the start script: a command's output stands in it"),
        ("llama-server -m ${M%.gguf}", "of the start script: an expansion stands in it that only a shell can tell"),
        ("cat > /c <<EOF\nx\nEOF\nllama-server -m a", "of the start script: a here-document stands in it"),
        (
            "if test -n x; then llama-server -m a; fi",
            "it starts inside a condition or a loop, which only a shell can tell",
        ),
        ("llama-server -m 'a", "the start script could not be read and is kept as written: a quote in it does not end"),
        ('llama-server -m "a', "the start script could not be read and is kept as written: a quote in it does not end"),
        ("/own/start.sh", "the start script names no known engine and is kept as written"),
        ("llama-server -m a & llama-server -m b; wait", SEVERAL),
        ("if test -n x; then llama-server -m a; else tini -- bash -c 'llama-server -m b'; fi", SEVERAL),
        ("bash -c 'llama-server -m a & llama-server -m b'", SEVERAL),
    ],
)
def test_what_only_a_shell_can_tell_is_said(script: str, said: str) -> None:
    assert said in profile(LLAMA_IMAGE, script, command=SH).notes


def test_what_stands_before_a_shell_is_a_wrapper_and_what_stands_beside_its_engine_is_kept() -> None:
    direct = values(profile(LLAMA_IMAGE, command=["tini", "--", "llama-server", "-m", "a.gguf", "-ts", "3,1"]))
    script = "ulimit -l unlimited; exec llama-server -m a.gguf -ts 3,1"
    behind = values(profile(LLAMA_IMAGE, command=["tini", "--", "sh", "-c", script]))
    assert behind == {**direct, "start-script": "ulimit -l unlimited"} and direct["wrapper"] == "tini --"
    inner = values(profile(LLAMA_IMAGE, command=["sh", "-c", f"nice bash -c '{script}'; date"]))
    assert inner["start-script"] == "ulimit -l unlimited; date" and inner["wrapper"] == "nice"
    own = values(profile("own/e", command=["tini", "--", "sh", "-c", "own --x 1"]))
    assert (own["wrapper"], own["start-script"]) == ("tini --", "own --x 1")


def test_a_command_that_starts_no_engine_and_one_engine_alone_are_not_said_to_be_several() -> None:
    for script in (
        "which llama-server; llama-server -m a",
        "llama-server --version; llama-server -m a",
        "llama-server",
    ):
        assert SEVERAL not in profile(LLAMA_IMAGE, script, command=SH).notes
    told = values(profile(LLAMA_IMAGE, "llama-server -m a --port 1 & llama-server -m b; wait", command=SH))
    assert (told["weights"], told["start-script"]) == ("a", "llama-server -m b; wait")


@pytest.mark.parametrize("command", [["su", "me", "-c"], ["/usr/bin/env", "-S"], ["own", "--run"]])
def test_an_engine_inside_of_a_text_that_is_not_read_is_said(command: list[str]) -> None:
    said = "the command names an engine inside of a text that could not be read: its settings are not told one by one"
    assert said in profile(LLAMA_IMAGE, "exec llama-server -m a -ts 3,1", command=command).notes
    assert said not in profile(LLAMA_IMAGE, "a text without one", command=command).notes


def test_scripts_inside_of_scripts_are_read_to_an_end() -> None:
    script = "llama-server -m a"
    for depth in range(1, MOST_SHELLS + 1):
        script = shlex.join(["sh", "-c", script])
        if len(script) > 20_000:
            break
        assert read_launch(SH, [script], "", {}).words == ["-m", "a"], depth
    for count, engine in ((MOST_SHELLS - 1, "llama-server"), (MOST_SHELLS, None)):
        many = "sh -c 'x $@' y; " * count + "sh -c 'llama-server -m a'"
        assert read_launch(SH, [many], "", {}).engine == engine
    for count, engine in ((LONGEST_INNER - 40, "llama-server"), (LONGEST_INNER, None)):
        assert read_launch(SH, ["sh -c 'llama-server -m $0' " + "x" * count], "", {}).engine == engine
    wide = "; ".join(["sh -c '" + "$@ " * 400 + "' " + "yyyy " * 400] * 60)
    assert read_launch(SH, [wide], "", {}).engine is None
    flags = ["sh", *["sh", "-o"] * 2_000]
    assert read_launch(flags, [], "", {}).engine is None


@pytest.mark.parametrize("name", ["LWS_GROUP_SIZE", "LWS_LEADER_ADDRESS", "HOSTNAME", "KUBERNETES_SERVICE_HOST"])
def test_variables_that_the_platform_gives_are_not_missing(name: str) -> None:
    assert profile(VLLM_IMAGE, "m", "--x", f"$({name})").notes == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a 'b c' \"d e\"", [["a", "b c", "d e"]]),
        ("a\\ b", [["a b"]]),
        ('a "x\\"y\\z\\\nw"', [["a", 'x"y\\zw']]),
        ("a ''", [["a", ""]]),
        ('a "$E" $E', [["a", ""]]),
        ("a$V'b'", [["a1b"]]),
        ("a $S", [["a", "x", "y"]]),
        ("a b$S", [["a", "b", "x", "y"]]),
        ('a "$S"', [["a", " x y "]]),
        ("a $", [["a", "$"]]),
        ("a && b || c | d & e; f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a >x 2>/dev/null <y b", [["a", "b"]]),
        ("a#b #c", [["a#b"]]),
        ("a $1 $9 ${0}", [["a", "one", "zero"]]),
        ("a $@", [["a", "one", "two", "words"]]),
        ('a x"$@"y', [["a", "xone", "two wordsy"]]),
    ],
)
def test_words_are_split_as_a_shell_splits_them(text: str, words: list[list[str]]) -> None:
    found = read_script(text, {"V": "1", "E": "", "S": " x y "}, ["zero", "one", "two words"])
    assert [each.words for each in found.commands] == words


def test_a_variable_that_must_not_be_put_in_stays_as_written() -> None:
    found = read_script('a $K "${K}" ${K:-x}', {"K": None}, [])
    assert found.commands[0].words == ["a", "$K", "${K}", "${K:-x}"] and found.unknown == {}
    assert expand("$(K) $$(K) $(U)", {"K": None}, unknown := {}) == "$(K) $(K) $(U)" and list(unknown) == ["U"]


def test_a_script_that_would_grow_without_end_is_not_read() -> None:
    with pytest.raises(ShellProblem, match="once its variables are put in"):
        read_script("a " + "$V " * 1_100, {"V": "x" * 1_000}, [])
    assert len(read_script("a" * LONGEST_SCRIPT, {}, []).commands[0].words[0]) == LONGEST_SCRIPT
    with pytest.raises(ShellProblem, match=f"longer than {LONGEST_SCRIPT}"):
        read_script("a" * (LONGEST_SCRIPT + 1), {}, [])
    assert LONGEST_EXPANDED == 1_048_576


@given(st.text(alphabet="ab $'\"\\`(){}<>&|;#\n=-@1:", max_size=60))
def test_no_script_makes_the_reader_fall_over(text: str) -> None:
    with contextlib.suppress(ShellProblem):
        read_script(text, {"a": "x y", "b": None}, ["0", "1"])


@given(st.lists(st.text(alphabet="ab '\"$\\-=", max_size=5), max_size=5))
def test_quoted_words_come_back(words: list[Any]) -> None:
    found = read_script(shlex.join(["x", *words]), {}, [])
    assert found.commands[0].words == ["x", *words]
