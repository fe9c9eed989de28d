"""How much of a YAML file is read before it is refused."""

from __future__ import annotations

import pytest

from prefillgate.api import strict_yaml
from prefillgate.api.strict_yaml import MAX_BYTES, YamlProblem, read_yaml


def test_a_megabyte_of_values_is_refused_where_there_are_too_many_before_it_is_read_to_its_end() -> None:
    line = b"  1, 1,\n"  # what follows is no YAML: whoever read on would say so
    raw = b"a: [\n" + line * 100_000 + b"  }"
    assert len(raw) <= MAX_BYTES
    with pytest.raises(YamlProblem) as refused:
        read_yaml(raw, "file.yaml")
    # two values a line after the mapping, its key and the list
    assert str(refused.value) == "file.yaml:10000: too many names and values (allowed: up to 20000 in a file)"


@pytest.mark.parametrize("text", [b"a: [1, 1]\n", b"a: {b: 1}\n", b"a: [[], x]\n", b"a: 1\nb: {}\n"])
def test_as_many_values_as_allowed_are_read_and_one_more_is_not(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_yaml, "MAX_VALUES", 5)
    assert "a" in read_yaml(text, "file.yaml").value
    monkeypatch.setattr(strict_yaml, "MAX_VALUES", 4)
    with pytest.raises(
        YamlProblem, match=r"^file\.yaml:[12]: too many names and values \(allowed: up to 4 in a file\)$"
    ):
        read_yaml(text, "file.yaml")
