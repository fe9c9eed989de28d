"""The rules of a test run, as a pytest plugin that `tests/conftest.py` registers.

* The last lines of a run list each real program, the version it told of itself, and how many tests spoke to it.
* A *whole run* (all of tests/, nothing filtered on the command line) fails when an expected program was spoken to
  by no test, and when any test was skipped, expected to fail, or deselected: a claim nobody checked is not green.
* Any run fails when it leaves a process behind. What is left is ended, by its own process id.
* With several workers, tests of the folders in `PARALLEL` are spread over them first. Those of the folders in `REAL`
  (they measure real servers) follow in one worker, in order, and those of a cluster in one; of all others each file has
  one worker, so that what a file starts is started once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support import leftovers, programs
from tests.support.namespace import FOLDERS

# Longest first: a long test that starts last would run alone.
PARALLEL = ("simulation", "evidence", "report", "project", "commands", "importing", "lines", "unit")
REAL = ("demo", "first_hour", "engine", "contract")
CLUSTER = FOLDERS  # a control plane is started once for a folder, and two at once would be slow
LAST = "runner"  # many files, none of them long: the workers end at about the same time
FILTERS = {"-k", "-m", "--deselect", "--ignore", "--ignore-glob", "--lf", "--last-failed", "--sw", "--stepwise"}


class WholeRun:
    """Collects what a run did, in every worker and in the process that controls them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_worker = hasattr(config, "workerinput")
        self._rows: set[programs.Row] = set()
        self._leaks: list[str] = []
        self._deselected: set[str] = set()
        self._not_run: dict[str, str] = {}
        self._problems: list[str] = []
        self._marker = leftovers.mark_children()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Parallel folders first, then those with real servers, then the others, and at the end `LAST`."""
        order = {name: place for place, name in enumerate((*PARALLEL, *REAL))}
        places = {**order, LAST: len(order) + 1}
        items.sort(key=lambda item: places.get(_folder(self._config, item), len(order)))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Who runs what. By folder and file: the marks that pytest-xdist reads are lost under pytest 9.2."""
        from xdist.scheduler import LoadScopeScheduling

        class ByFolder(LoadScopeScheduling):
            def _split_scope(self, nodeid: str) -> str:
                return group_of(nodeid)

        return ByFolder(config, log) if config.getvalue("dist") == "loadgroup" else None

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Deselected by whatever means: a filter in a configuration file counts too."""
        self._deselected.update(item.nodeid for item in items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Skipped tests and tests expected to fail, whether they passed or not."""
        if hasattr(report, "wasxfail"):
            self._not_run[report.nodeid] = "expected to fail"
        elif report.skipped:
            self._not_run[report.nodeid] = "skipped"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that skips itself while it is collected hides all its tests."""
        if report.skipped:
            self._not_run[report.nodeid] = "skipped"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker is done: take over what it saw."""
        told = getattr(node, "workeroutput", {}).get("whole_run")
        if told is None:
            self._problems.append(f"worker {node.gateway.id} ended without telling what its tests did")
            return
        self._rows.update(tuple(row) for row in told["rows"])
        self._leaks += told["leaks"]
        self._deselected.update(told["deselected"])
        self._not_run.update(told["not_run"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """After the last fixture was torn down: look for processes, then judge the run."""
        if self._is_worker or not self._config.getoption("numprocesses", None):  # else its children are the workers
            self._leaks += leftovers.end_leftovers(self._marker)
        self._rows.update(programs.recorded())
        if self._is_worker:
            self._config.workeroutput["whole_run"] = {  # type: ignore[attr-defined]
                "rows": sorted(self._rows),
                "leaks": self._leaks,
                "deselected": sorted(self._deselected),
                "not_run": self._not_run,
            }
            return
        self._problems += [f"left a process behind: {line}" for line in self._leaks]
        if is_whole(self._config):
            self._problems += self._gaps()
        if self._problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _gaps(self) -> list[str]:
        met = {name for name, _, _ in self._rows}
        gaps = [f"{why}: {nodeid}" for nodeid, why in sorted(self._not_run.items())]
        gaps += [f"deselected: {nodeid}" for nodeid in sorted(self._deselected)]
        return gaps + [f"no test spoke to {name}" for name in programs.EXPECTED if name not in met]

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """After pytest's own closing line, so that these are the last lines of the run."""
        if self._is_worker or self._config.option.collectonly:
            return
        whole = is_whole(self._config)
        lines = [f"run fails: {problem}" for problem in self._problems]
        lines += programs.summary_lines(self._rows, programs.EXPECTED if whole else ())
        reporter = self._config.get_terminal_writer()
        for line in lines:
            reporter.line(line)


def _folder(config: pytest.Config, item: pytest.Item) -> str:
    """Name of the folder under tests/ that the item is in."""
    tests = config.rootpath / "tests"
    parts = item.path.relative_to(tests).parts if item.path.is_relative_to(tests) else ()
    return parts[0] if len(parts) > 1 else ""


def group_of(nodeid: str) -> str:
    """What must stay in one worker: a test of a parallel folder, all real servers, a cluster, or a file."""
    path = nodeid.partition("::")[0]
    parts = path.split("/")
    folder = parts[1] if parts[0] == "tests" and len(parts) > 2 else ""
    if folder in PARALLEL:
        return nodeid
    if folder in CLUSTER:
        return "cluster"
    return "real servers" if folder in REAL else path


def is_whole(config: pytest.Config) -> bool:
    """Whether all of tests/ was asked for. Filters typed by a person make it partial, configured ones do not."""
    typed = [str(argument) for argument in config.invocation_params.args]
    if any(word.partition("=")[0] in FILTERS or word[:2] in FILTERS for word in typed):
        return False
    asked = {(config.invocation_params.dir / argument).resolve() for argument in config.args}
    return bool(asked & {config.rootpath.resolve(), (config.rootpath / "tests").resolve()})
