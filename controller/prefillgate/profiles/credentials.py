"""Which names are those of credentials: any word of a name counts, whatever stands around it.

`OPENAI_API_KEY_1`, `hfToken`, `auth.value` and `DB_PASS` are; `--max-tokens`, `pass_config`, `num_key_value_heads` are
not. `tokens`, and `token` where more follows, is also what models count: there the value has a say.
"""

from __future__ import annotations

import functools
import re

_SURE = frozenset(
    {
        *(
            "key",
            "keys",
            "apikey",
            "apikeys",
            "passwd",
            "password",
            "passwords",
            "passphrase",
            "passcode",
            "pwd",
            "pass",
        ),
        *("secret", "secrets", "credential", "credentials", "cred", "creds", "auth", "authorization", "bearer"),
        *("cookie", "cookies", "dsn", "pat", "jwt", "signature", "webhook", "netrc", "pgpass"),
    }
)
_WITHIN = ("password", "passwd", "passphrase", "apikey", "secret", "credential", "accesskey", "privatekey", "authkey")
_ENDS = ("token", "pass", "accountkey", "sharedkey", "masterkey", "licensekey")
_OTHER_WORDS = frozenset({"bypass", "compass"})
# What engines and models call so: taken out before the words are looked at.
_HARMLESS = re.compile(
    r"_(?:pass_config|(?:forward|pre|post|single|multi|first|second|max|num|n)_pass|pass_(?:through|manager)"
    r"|(?:past_)?key_values?|(?:num_)?key_(?:heads?|head_dim|dim|length|length_mla|norm|proj|cache|quant|scales?)"
    r"|routing_key|cache_key|hash_key|storage_spec_key|secret_(?:name|namespace|provider_class)"
    r"|(?:bos|eos|eot|eom|pad|unk|sep|cls|mask|stop|start|end|think|special|image|audio|video|vision|fim)_tokens?"
    r"|(?:added|suppress|bad)_tokens|tokens?_(?:map|embd|embedding|embeddings|type|types|buckets|tree))(?=_)"
)
# Numbers stand under these, and whoever keeps a credential there is not believed to keep a number.
_COUNTED = re.compile(r"_(?:max|min|num|n|per|output|input|prompt|draft|first|last|next|implicit)_token(?=_)")
# Where something stands, or the object that holds it: `--ssl-keyfile`, `secretRef.name`.
_PLACES = frozenset({"file", "files", "filename", "path", "paths", "dir", "directory", "folder", "ref", "refs"})
_STATES = frozenset({"", "on", "off", "true", "false", "null", "none"})
_NUMBERS = re.compile(r"[\d\s.,:;eE+\-\[\](){}\"']*")


def _words(part: str) -> list[str]:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", part)
    return [word for word in re.split(r"[\W\d_]+", apart.lower()) if word]


def _is_sure(word: str) -> bool:
    if word in _SURE or any(each in word for each in _WITHIN):
        return True
    return word.endswith(_ENDS) and word != "token" and word not in _OTHER_WORDS


@functools.lru_cache(maxsize=4096)
def _told(name: str) -> tuple[bool, bool]:
    """Whether a name is a credential's whatever its value is, and whether it is one's unless that is a number."""
    sure = perhaps = False
    for part in re.split(r"[./]", name):
        listed = _words(part)
        if not listed or listed[-1] in _PLACES:
            continue
        left = _HARMLESS.sub("", f"_{'_'.join(listed)}_")
        if _COUNTED.search(left):
            left, perhaps = _COUNTED.sub("", left), True
        words = [word for word in left.split("_") if word]
        sure = sure or words[-2:] in (["s", "access"], ["aws", "access"]) or ("otlp" in words and "headers" in words)
        sure = sure or any(_is_sure(word) for word in words) or words[-1:] == ["token"]
        perhaps = perhaps or "token" in words or "tokens" in words
    return sure, perhaps


def plain_name(name: str) -> str:
    """A flag, a variable or a field in one spelling: `--api-key`, `apiKey` and `API_KEY` are `api_key`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip("-")).lower().replace("-", "_")


def is_state(value: str) -> bool:
    """Whether a value is no more than on or off, which no credential is."""
    return value.strip().lower() in _STATES


def named_so(name: str, value: str | None = None) -> bool:
    """Whether a name with dots or slashes, in any of its parts, is that of a credential; None: of any text."""
    told = name.strip("-")
    if told.startswith("preset "):  # the section of a file of presets is the name of a model
        told = told.split()[-1]
    sure, perhaps = _told(told[:512])
    return sure or (perhaps and value is not None and _NUMBERS.fullmatch(value[:4096]) is None)


def takes_credential(flag: str) -> bool:
    """Whether a flag takes one, even where that looks like the next flag: its last word says so."""
    listed = _words(re.split(r"[./]", flag.strip("-"))[-1])
    return bool(listed) and (listed[-1] == "token" or _is_sure(listed[-1])) and named_so(flag)
