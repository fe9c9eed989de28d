"""The variables of a container, in the order in which Kubernetes makes them."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prefillgate.profiles.fields import items, mapping, text_of
from prefillgate.profiles.launch import Budget, expand
from prefillgate.profiles.shell import LONGEST_EXPANDED
from prefillgate.profiles.sources import SecretFacts, Sources

# What admission webhooks of clouds put into every container.
INJECTED_VARIABLES = frozenset(
    {
        *("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_STS_REGIONAL_ENDPOINTS"),
        *("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
        *("AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST"),
    }
)


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable. `value` None: it must not or cannot be put in, and `told` says where it comes from."""

    name: str
    value: str | None
    told: str
    checksums: tuple[str, ...] = ()  # annotations of its Secret, sealed before they are shown


def variables_of(container: Mapping[str, Any], at: str, sources: Sources) -> tuple[dict[str, Variable], list[str]]:
    """Variables by name, and what could not be told of them. Raises `ProfileError`."""
    found: dict[str, Variable] = {}
    notes: list[str] = []
    for each, path in items(container.get("envFrom"), f"{at}.envFrom"):
        for variable in _all_of(mapping(each, path), path, sources, notes):
            found[variable.name] = variable
    known = {name: each.value for name, each in found.items()}
    budget = Budget()
    for each, path in items(container.get("env"), f"{at}.env"):
        entry = mapping(each, path)
        name = text_of(entry.get("name"), f"{path}.name")
        found[name] = _one(name, entry, path, _Around(sources, known, notes, budget))
        known[name] = found[name].value
    if budget.spent:
        notes.append(f"variables longer than {LONGEST_EXPANDED} characters together were not all put in")
    ignored = (*INJECTED_VARIABLES, *sources.ignored)
    kept = {
        name: each for name, each in found.items() if not any(fnmatch.fnmatchcase(name, pattern) for pattern in ignored)
    }
    return kept, notes


@dataclass(frozen=True, slots=True)
class _Around:
    """What a variable is read beside: those before it, and where to say what is missing."""

    sources: Sources
    known: Mapping[str, str | None]
    notes: list[str]
    budget: Budget


def _one(name: str, entry: Mapping[str, Any], path: str, around: _Around) -> Variable:
    given = mapping(entry.get("valueFrom"), f"{path}.valueFrom")
    if not given:
        value = entry.get("value")
        text = "" if value is None else text_of(value, f"{path}.value")
        return Variable(name, expand(text, around.known, {}, around.budget), "")
    for kind, reference in given.items():
        held = mapping(reference, f"{path}.valueFrom.{kind}")
        owner, key = str(held.get("name")), str(held.get("key"))
        if kind == "secretKeyRef":
            return _of_secret(name, owner, key, around.sources)
        if kind == "configMapKeyRef":
            value = (around.sources.config_maps.get(owner) or {}).get(key)
            if value is None and not held.get("optional"):
                around.notes.append(f"variable {name}: ConfigMap {owner} has no key {key}, or was not read")
            return Variable(name, value, f"ConfigMap {owner} key {key}")
        if kind == "fieldRef":
            return Variable(name, None, f"the pod's {held.get('fieldPath')}")
        if kind == "resourceFieldRef":
            return Variable(name, None, f"the container's {held.get('resource')}")
        return Variable(name, None, f"from {kind}")
    return Variable(name, None, "")


def _of_secret(name: str, owner: str, key: str, sources: Sources) -> Variable:
    facts = sources.secrets.get(owner) or SecretFacts()
    return Variable(name, None, f"Secret {owner} key {key}", tuple(value for _, value in facts.checksums))


def _all_of(entry: Mapping[str, Any], path: str, sources: Sources, notes: list[str]) -> Iterator[Variable]:
    prefix = str(entry.get("prefix") or "")
    config_map = mapping(entry.get("configMapRef"), f"{path}.configMapRef")
    secret = mapping(entry.get("secretRef"), f"{path}.secretRef")
    if config_map:
        name = str(config_map.get("name"))
        data = sources.config_maps.get(name)
        if data is None:
            if not config_map.get("optional"):
                notes.append(f"ConfigMap {name}, which gives variables, was not there or not read")
            yield Variable(f"{prefix}*", None, f"ConfigMap {name}")
        for key, value in sorted((data or {}).items()):
            yield Variable(prefix + key, value, f"ConfigMap {name} key {key}")
    if secret:
        name = str(secret.get("name"))
        facts = sources.secrets.get(name) or SecretFacts()
        if facts.keys is None:
            notes.append(f"Secret {name} gives variables whose names are not known")
            yield Variable(f"{prefix}*", None, f"Secret {name}", tuple(value for _, value in facts.checksums))
        for key in facts.keys or ():
            yield _of_secret(prefix + key, name, key, sources)
