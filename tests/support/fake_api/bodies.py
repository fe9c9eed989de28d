"""A request's body as the API server reads it: JSON, and of a server-side apply YAML."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from tests.support.fake_api.store import Refused


class _Loader(yaml.CSafeLoader):
    """libyaml, which the API server's decoder is a port of, with JSON's numbers."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^-?\d+(\.\d+)?[eE][-+]?\d+$"), list("-0123456789")
)


def read_body(raw: bytes, applied: bool) -> Any:
    """What stands in it. Raises Refused."""
    if not applied:
        return json.loads(raw)
    try:
        return yaml.load(raw, Loader=_Loader)
    except (yaml.YAMLError, UnicodeError) as error:
        raise Refused(400, "BadRequest", f"error decoding YAML: {error}") from error
