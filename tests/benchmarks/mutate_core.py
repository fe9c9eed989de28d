"""Changes the core one place at a time and runs the unit tests: a change that no test notices is printed.

    python tests/benchmarks/mutate_core.py [--module units] [--limit 50] [--seed 1] [--workers 2]

A mutant is one number, comparison, `and`/`or`, `not`, arithmetic operator, boolean, returned value or function body
changed. Strings, annotations, decorators and docstrings are left alone. Each mutant is tried in a fork of one process
that has imported the test tools but nothing of the package: first on the test files of its module (test_<module>*.py),
then on those that name it, then on the others in tests/unit. The tree is copied first, so work may go on meanwhile.

A line whose change cannot be seen from outside says so, with the reason:  # equivalent mutant: <why>

Exits 0 when every mutant was noticed, 1 when some survived, 2 when the unchanged code does not pass its tests.
Needs os.fork (Linux, macOS).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = Path("controller/prefillgate/core")
EXCUSE = "# equivalent mutant:"
OK, SURVIVED, BROKEN = 0, 1, 2
MEMORY = 4 * 1024**3
MOST_SECONDS = 600  # of work, for all tests on unchanged code
WAITING = 20  # times its seconds of work: a mutant that sleeps is ended then, however busy the machine is

SWAPPED_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
SWAPPED_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
SWAPPED_CALLS = {"min": "max", "max": "min", "all": "any", "any": "all"}


@dataclass(frozen=True)
class Mutant:
    """One change: `apply` makes it in a tree that was parsed from the same text, at the node numbered `node`."""

    path: Path  # below the root
    text: str
    node: int
    line: int
    what: str
    apply: Callable[[ast.AST], None]

    def tree(self) -> ast.Module:
        """The module's tree with the change in it."""
        tree = ast.parse(self.text)
        self.apply(list(ast.walk(tree))[self.node])
        return ast.fix_missing_locations(tree)


@dataclass
class Results:
    """How the mutants ended."""

    noticed: int = 0
    survivors: list[Mutant] = field(default_factory=list)


# What may be changed


def mutants_of(root: Path, path: Path) -> Iterator[Mutant]:
    """Every mutant of one module, in the order of its lines."""
    text = (root / path).read_text(encoding="utf-8")
    lines = text.splitlines()
    tree = ast.parse(text)
    untouched = set(_untouched(tree))
    found = [
        Mutant(path, text, number, node.lineno, what, apply)
        for number, node in enumerate(ast.walk(tree))
        if node not in untouched and isinstance(node, ast.expr | ast.stmt)
        for what, apply in changes(node)
        if EXCUSE not in lines[node.lineno - 1]
    ]
    yield from sorted(found, key=lambda mutant: (mutant.line, mutant.node))


def _untouched(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes below annotations and decorators, in protocols and stubs, and what only names things."""
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [*node.decorator_list, node.returns]
            if _is_stub(node):
                parts.append(node)
        elif isinstance(node, ast.ClassDef):
            parts = list(node.decorator_list)
            if any(ast.unparse(base).partition("[")[0] == "Protocol" for base in node.bases):
                parts.append(node)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.Assign) and any(ast.unparse(t) in ("__slots__", "__all__") for t in node.targets):
            parts = [node]
        for part in parts:
            if part is not None:
                yield from ast.walk(part)


def _is_stub(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return all(isinstance(statement, ast.Pass) or _is_constant(statement) for statement in function.body)


def _is_constant(statement: ast.stmt) -> bool:
    """A docstring or an ellipsis."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def changes(node: ast.AST) -> list[tuple[str, Callable[[ast.AST], None]]]:
    """What may be changed at this node itself: a description, and how to make the change."""
    match node:
        case ast.Constant(value=bool() as value):
            return [_constant(value, not value)]
        case ast.Constant(value=int() as value):
            return [_constant(value, other) for other in ({0: [1], 1: [0, 2]}.get(value) or [value + 1, value - 1])]
        case ast.Constant(value=float() as value):
            return [_constant(value, other) for other in ([value * 1.5, value * 1.01] if value else [1.0])]
        case ast.Compare(ops=ops):
            return [_swap("ops", SWAPPED_COMPARISONS[type(op)], at) for at, op in enumerate(ops)]
        case ast.BoolOp(op=op):
            return [_swap("op", ast.Or if isinstance(op, ast.And) else ast.And)]
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPPED_OPERATORS:
            return [_swap("op", SWAPPED_OPERATORS[type(op)])]
        case ast.Call(func=ast.Name(id=name)) if name in SWAPPED_CALLS:
            return [_set(f"{name} -> {SWAPPED_CALLS[name]}", "func", ast.Name(SWAPPED_CALLS[name], ast.Load()))]
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            return _negated("test", test)
        case ast.Return(value=value) if value is not None and not _is_none(value):
            return [_set("returns None", "value", ast.Constant(None))]
        case ast.FunctionDef(body=body) if not _only_returns(body):
            return [_set(f"body of {node.name} gone", "body", [ast.Return(ast.Constant(None))])]
    return []


def _negated(name: str, test: ast.expr) -> list[tuple[str, Callable[[ast.AST], None]]]:
    """A condition turned round, where it is not a comparison, which has mutants of its own."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return [_set("not dropped", name, test.operand)]
    if isinstance(test, ast.Compare | ast.BoolOp | ast.Constant):
        return []
    return [_set("condition turned round", name, ast.UnaryOp(ast.Not(), test))]


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _only_returns(body: Sequence[ast.stmt]) -> bool:
    """Whether a body is one return statement, whose value has a mutant already."""
    code = [statement for statement in body if not _is_constant(statement)]
    return len(code) == 1 and isinstance(code[0], ast.Return)


def _constant(old: object, new: bool | int | float) -> tuple[str, Callable[[ast.AST], None]]:
    return _set(f"{old!r} -> {new!r}", "value", new)


def _swap(name: str, new: type[ast.AST], at: int | None = None) -> tuple[str, Callable[[ast.AST], None]]:
    def apply(node: ast.AST) -> None:
        if at is None:
            setattr(node, name, new())
        else:
            getattr(node, name)[at] = new()

    return f"-> {new.__name__}", apply


def _set(what: str, name: str, new: object) -> tuple[str, Callable[[ast.AST], None]]:
    return what, lambda node: setattr(node, name, new)


# Trying one mutant


class MutantFinder(importlib.abc.MetaPathFinder):
    """Loads the mutated tree when the tests import its module; every other import goes its usual way."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = ".".join(mutant.path.relative_to("controller").with_suffix("").parts).removesuffix(".__init__")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for the mutated module alone."""
        if fullname != self._name:
            return None
        file = str(Path.cwd() / self._mutant.path)
        return importlib.util.spec_from_file_location(fullname, file, loader=MutantLoader(fullname, file, self._mutant))


class MutantLoader(importlib.machinery.SourceFileLoader):
    """Compiles the mutated tree under the module's own file name, and never from a cache."""

    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """The code object of the mutated tree."""
        return compile(self._mutant.tree(), self.path, "exec")


class BeforeRewriting:
    """A pytest plugin that puts the mutant before pytest's own import hook, which takes every module of a package
    that brings a plugin, and so every module of this one."""

    def __init__(self, mutant: Mutant | None) -> None:
        self._mutant = mutant

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        """Comes after that hook and before anything of the tests is imported."""
        if self._mutant is not None:
            sys.meta_path.insert(0, MutantFinder(self._mutant))


def start(tree: Path, mutant: Mutant | None, tests: Sequence[str], log: Path, limit_seconds: int) -> int:
    """Fork a process that runs `tests` in the copy `tree` with the mutant in place; returns its id.

    A mutant may make a loop without an end: it ends by itself after so many seconds of work, or beyond `MEMORY`.
    """
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (limit_seconds, limit_seconds))
        if mutant is not None:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.chdir(tree)
        sys.path.insert(0, str(tree / "controller"))
        os.environ["PYTHONPATH"] = str(tree / "controller")
        descriptor = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist"]
        code = int(pytest.main([*options, *tests], plugins=[BeforeRewriting(mutant)]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def finished(pid: int, deadline: float) -> int | None:
    """Exit code of the process, None while it runs. After `deadline` it is killed, with all it started: -1."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended:
        return os.waitstatus_to_exitcode(status)
    if time.monotonic() < deadline:
        return None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -1


def stages(module: Path, tree: Path) -> list[list[str]]:
    """Test files to try, in goes: those of the module, those that name it, all others.

    Where no test file names the module, those that name a module that imports it stand for them, and so on.
    """
    files = sorted((tree / "tests" / "unit").rglob("test_*.py"))
    stem = module.stem
    own = [f for f in files if f.stem == f"test_{stem}" or f.stem.startswith(f"test_{stem}_")]
    naming = [f for f in files if f not in own and _names(f, {f"prefillgate.core.{stem}"})]
    above, seen = _importers(tree, {f"prefillgate.core.{stem}"}), set[str]()
    while not own and not naming and above - seen:
        naming, seen = [f for f in files if _names(f, above)], seen | above
        above = _importers(tree, above)
    others = [f for f in files if f not in own and f not in naming]
    return [[str(file.relative_to(tree)) for file in part] for part in (own, naming, others) if part]


def _names(file: Path, modules: set[str]) -> bool:
    any_of = "|".join(map(re.escape, sorted(modules)))
    return re.search(rf"\b(?:{any_of})\b", file.read_text(encoding="utf-8")) is not None


def _importers(tree: Path, modules: set[str]) -> set[str]:
    """The package's modules that name one of these."""
    package = tree / "controller"
    naming = (file for file in package.rglob("*.py") if _names(file, modules))
    return {".".join(file.relative_to(package).with_suffix("").parts) for file in naming}


# The run


@dataclass
class Job:
    """One mutant being tried: the process at work on its first stage, and the stages that are left."""

    mutant: Mutant
    left: list[list[str]]
    log: Path
    pid: int
    deadline: float


class Pool:
    """Tries mutants side by side, `workers` at a time."""

    def __init__(self, tree: Path, options: argparse.Namespace) -> None:
        self._tree = tree
        self._workers = max(1, options.workers)
        self._near = bool(options.near)
        self._limits: dict[tuple[str, ...], int] = {}
        self._stages: dict[Path, list[list[str]]] = {}
        self._jobs: list[Job] = []
        self._logs = 0
        self.results = Results()

    def stages(self, mutant: Mutant) -> list[list[str]]:
        """Test files to try, nearest first."""
        found = self._stages.get(mutant.path)
        if found is None:
            found = self._stages[mutant.path] = stages(mutant.path, self._tree)
        return found[:-1] if self._near and len(found) > 1 else found

    def measure(self, mutants: Sequence[Mutant]) -> float:
        """Run the unchanged code, and take from it how long a mutant may work in the first go of its module, where
        nearly all of them end, and in any other. Returns the seconds all tests took."""
        firsts = {tuple(self.stages(m)[0]) for m in mutants}
        took = unchanged(self._tree, sorted({test for m in mutants for stage in self.stages(m) for test in stage}))
        self._limits = {(): _limit(took)} | {first: _limit(unchanged(self._tree, first)) for first in firsts}
        return took

    def run(self, mutants: Sequence[Mutant]) -> Results:
        """Try them all; survivors are printed as they are found."""
        waiting = list(reversed(mutants))
        done = 0
        try:
            while waiting or self._jobs:
                while waiting and len(self._jobs) < self._workers:
                    mutant = waiting.pop()
                    self._start(mutant, self.stages(mutant))
                ended = self._collect()
                done += ended
                if ended and done % 50 == 0:
                    print(f"  {done} of {len(mutants)} tried, {len(self.results.survivors)} survived", flush=True)
                time.sleep(0 if ended else 0.02)
        finally:
            for job in self._jobs:
                finished(job.pid, deadline=0.0)
        return self.results

    def _start(self, mutant: Mutant, left: list[list[str]]) -> None:
        self._logs += 1
        log = self._tree / f"log-{self._logs % (4 * self._workers)}"
        limit = self._limits.get(tuple(left[0]), self._limits[()])
        pid = start(self._tree, mutant, left[0], log, limit)
        self._jobs.append(Job(mutant, left[1:], log, pid, time.monotonic() + WAITING * limit))

    def _collect(self) -> int:
        """Look at each job once; returns how many mutants came to their end."""
        ended = 0
        for job in list(self._jobs):
            code = finished(job.pid, job.deadline)
            if code is None:
                continue
            self._jobs.remove(job)
            if code in (4, 70):
                raise RuntimeError(
                    f"pytest could not run for {job.mutant.path}:{job.mutant.line}\n{job.log.read_text()}"
                )
            if code not in (0, 5):
                self.results.noticed += 1
                ended += 1
            elif job.left:
                self._start(job.mutant, job.left)
            else:
                self.results.survivors.append(job.mutant)
                print(describe(job.mutant), flush=True)
                ended += 1
        return ended


def describe(mutant: Mutant) -> str:
    """Where a survivor is, and its statement before and after."""
    old, new = (ast.unparse(tree).splitlines() for tree in (ast.parse(mutant.text), mutant.tree()))
    removed, added = _differing(old, new)
    shown = [f"    - {line.strip()}" for line in removed[:6]] + [f"    + {line.strip()}" for line in added[:6]]
    return "\n".join([f"SURVIVED {mutant.path}:{mutant.line}  {mutant.what}", *shown])


def _differing(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    """The lines between the common head and the common tail of two texts."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return old[head : len(old) - tail], new[head : len(new) - tail]


def copy_tree(target: Path) -> None:
    """What the unit tests need, so that an edit in the checkout meanwhile changes nothing."""
    for name in ("controller", "tests", "policies", "charts", "manifests", ".ci"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file() and path.suffix != ".db":
            shutil.copy(path, target)


def preload() -> None:
    """Import what takes long and is not under test, once, before the first fork."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a thread pool would not survive the fork
    os.environ["HYPOTHESIS_PROFILE"] = "mutation"
    for name in ("pytest", "hypothesis", "hypothesis.strategies", "pytest_asyncio", "scipy.stats", "httpx", "pydantic"):
        __import__(name)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--module", action="append", help="a module of the core, without .py; may be repeated")
    parser.add_argument("--limit", type=int, help="try this many, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default 1)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--near", action="store_true", help="only the tests of the module and those that name it")
    parser.add_argument("--list", action="store_true", help="name the mutants and stop")
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace, root: Path) -> list[Mutant]:
    """The mutants that the options ask for. Raises SystemExit for a module that is not there."""
    paths = sorted(path.relative_to(root) for path in (root / CORE).glob("*.py"))
    unknown = set(options.module or ()) - {path.stem for path in paths}
    if unknown:
        raise SystemExit(f"no such module in the core: {', '.join(sorted(unknown))}")
    mutants = [m for path in paths if not options.module or path.stem in options.module for m in mutants_of(root, path)]
    if options.limit is not None and options.limit < len(mutants):
        mutants = random.Random(options.seed).sample(mutants, options.limit)
    return mutants


def unchanged(tree: Path, tests: Sequence[str]) -> float:
    """Run the tests on the unchanged copy; returns the seconds of work. Raises SystemExit(2) when they fail."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    log = tree / "log"
    deadline = time.monotonic() + WAITING * MOST_SECONDS
    pid = start(tree, None, tests, log, MOST_SECONDS)
    while (code := finished(pid, deadline)) is None:
        time.sleep(0.05)
    if code != 0:
        print(f"the unchanged code does not pass its unit tests:\n{log.read_text(errors='replace')}")
        raise SystemExit(BROKEN)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _limit(took: float) -> int:
    """Seconds of work a mutant gets where the unchanged code took so many."""
    return 10 + round(5 * took)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the mutants, print the survivors and a last line with the counts."""
    options = parsed(arguments)
    with tempfile.TemporaryDirectory(prefix="prefillgate-mutants-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        mutants = chosen(options, tree)
        if options.list:
            print("\n".join(f"{m.path}:{m.line}  {m.what}" for m in mutants))
            return OK
        preload()
        pool = Pool(tree, options)
        took = pool.measure(mutants)
        print(f"tests pass unchanged in {took:.1f} s; {len(mutants)} mutants to try", flush=True)
        results = pool.run(mutants)
    print(f"{results.noticed} of {len(mutants)} mutants noticed, {len(results.survivors)} survived")
    return SURVIVED if results.survivors else OK


if __name__ == "__main__":
    sys.exit(main())
