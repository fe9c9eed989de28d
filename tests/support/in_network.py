"""A pytest plugin: tests of a cluster run in a network of their own (`tests.support.namespace`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.namespace import FOLDERS, Network, move_in


class InNetwork:
    """Moves the thread that runs a test of `FOLDERS` in before its first fixture and back after its last."""

    def __init__(self, config: pytest.Config) -> None:
        self._folders = [config.rootpath / "tests" / name for name in FOLDERS]
        self._network = Network()
        if not hasattr(config, "workerinput") and not config.option.collectonly:
            self._move_whole_run(config)

    def _move_whole_run(self, config: pytest.Config) -> None:
        """Start this run again inside, as a person needs who may make no namespace; for root nothing happens."""
        asked = [(config.invocation_params.dir / word.partition("::")[0]).resolve() for word in config.args]
        concerned = any(a.is_relative_to(f) or f.is_relative_to(a) for a in asked for f in self._folders)
        command = [sys.executable, "-m", "pytest", *map(str, config.invocation_params.args)]
        if moved := move_in(concerned, command, os.environ):
            config.pluginmanager.getplugin("capturemanager").stop_global_capturing()
            os.execvp(moved[0], moved)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """A test that cannot be moved in ends in error, and says why."""
        if self._concerns(item.path):
            self._network.enter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Fixtures that end with the test end inside; all others see the network that they know."""
        try:
            yield
        finally:
            if self._concerns(item.path):
                self._network.leave()

    def _concerns(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self._folders)
