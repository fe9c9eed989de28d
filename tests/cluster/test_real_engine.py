"""A real Deployment rolls out the real llama.cpp server."""

from __future__ import annotations

from importlib.metadata import version

import httpx
import pytest

from tests.support.cluster.api import wait_for
from tests.support.cluster.fixtures import Namespace
from tests.support.cluster.workloads import container, deployment, service
from tests.support.programs import record_real_program


def test_a_deployment_of_the_real_llama_server_serves_once_its_slice_says_ready(
    namespace: Namespace, request: pytest.FixtureRequest
) -> None:
    server = container("ghcr.io/example/llama-server:b1", ["-t", "1", "-c", "512", "-np", "1", "--port", "8080"])
    namespace.apply(service("llama"))
    namespace.apply(deployment("llama", server))
    namespace.rolled_out("llama")
    (address,) = wait_for(lambda: [ip for ip, told in namespace.slices("llama").items() if told["ready"]])
    asked = {"prompt": "One, two,", "n_predict": 2, "temperature": 0}
    told = httpx.post(f"http://{address}:8080/completion", json=asked, timeout=60, trust_env=False).json()
    assert (told["tokens_predicted"], told["tokens_evaluated"] > 2) == (2, True)
    build = httpx.get(f"http://{address}:8080/props", trust_env=False).json()["build_info"]
    record_real_program("llama-server", f"{build} (xllamacpp {version('xllamacpp')})", request.node.nodeid)
