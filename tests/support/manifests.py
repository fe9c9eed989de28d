"""Workloads as an API server returns them, for the tests of profiles."""

from __future__ import annotations

from typing import Any

from prefillgate.profiles import Profile, Seal, Sources, profile_of

KEY = b"k" * 32
LLAMA_IMAGE = "ghcr.io/ggml-org/llama.cpp:server-cuda"
VLLM_IMAGE = "vllm/vllm-openai:v0.33.0"
SGLANG_IMAGE = "lmsysorg/sglang:v0.5.23"


def sources(**given: Any) -> Sources:
    """Sources under the key of the tests."""
    more = given.pop("more", ())
    return Sources(Seal(KEY, more), **given)


def container(image: str = LLAMA_IMAGE, *args: Any, **given: Any) -> dict[str, Any]:
    """A container of a pod spec."""
    return {"name": "engine", "image": image, **({"args": list(args)} if args else {}), **given}


def pod_spec(*containers: dict[str, Any], **given: Any) -> dict[str, Any]:
    """A pod spec."""
    return {"containers": list(containers), **given}


def deployment(spec: dict[str, Any], kind: str = "Deployment", **template: Any) -> dict[str, Any]:
    """A Deployment, or another kind with its template in the same place."""
    metadata = {"name": "line", "labels": {"app": "line"}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"template": {"spec": spec, **template}},
    }


def profile(image: str, *args: Any, **given: Any) -> Profile:
    """The profile of a Deployment of one container."""
    return profile_of(deployment(pod_spec(container(image, *args, **given))), sources())


def llama(*args: Any, **given: Any) -> Profile:
    """The profile of a llama-server with these arguments."""
    return profile(LLAMA_IMAGE, *args, **given)


def values(found: Profile) -> dict[str, str]:
    """Setting name to value, without what the image and the command say."""
    return {each.name: each.value for each in found.settings if each.name not in ("build", "program")}
