"""Applies to every test: the rules of a whole run, what it asks of the machine, the network of
the cluster's tests, the settings of the property tests."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support import machine
from tests.support.in_network import InNetwork
from tests.support.whole_run import WholeRun

# No test may hang on how fast a machine is, and a red run must be red again: no deadline, the same examples each time.
# HYPOTHESIS_PROFILE=explore looks for new examples; `mutation` only needs to know that there is one.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", settings.get_profile("suite"), derandomize=False, max_examples=2_000)
settings.register_profile("mutation", settings.get_profile("suite"), phases=[Phase.explicit, Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

machine.compile_once(os.environ)
machine.keep_files_in_memory(os.environ)

# A run that a script begins in the background is deaf to Ctrl-C, and so would be the children that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes that are no text (an archive holds the second it was made in) name no test: each worker collects anew."""
    return argname if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()) else None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(InNetwork(config), "in-network")
    config.pluginmanager.register(WholeRun(config), "whole-run")
