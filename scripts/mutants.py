"""Change the core in small ways, one at a time, and see whether its tests notice.

    mutants.py [--seed N] [--count 40] [--only PATH] [--seconds 60]

A mutant is one changed operator, boundary, condition, constant or returned value, two swapped arguments, or one
statement left out, in a copy of the tree. It is killed by a test that fails, or by one that hangs, among the tests that
mirror its module: they may take three times as long as without the mutant, and at least ``--seconds``. What survives is
a missing assertion, or a change that changes nothing: such are listed by their keys, with the reason, in
`mutants_accepted.json`, and are not sampled again. Exit status 1 if any other survives. The tree does not change.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = Path("core/src/octavo"), Path("core/tests")
ACCEPTED = Path(__file__).with_name("mutants_accepted.json")

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_TESTED_ELSEWHERE = {
    "graph/passes/pooled.py": ["models/test_encoders.py", "models/test_pooling.py"],
    "errors.py": ["server/transport/test_errors.py", "models/test_hf_config.py", "platform/test_negotiate.py"],
    "env.py": ["cli/test_main.py", "engine/test_artifacts.py", "platform/test_selection.py"],
    "step_plan.py": ["runner/test_batch.py", "runner/test_runner.py", "scheduler/test_scheduler.py"],
    "pooling.py": ["models/test_pooling.py", "engine/test_pooling.py", "server/pooling/test_scores.py"],
    "sampling.py": ["test_sampling_params.py"],
    "config.py": ["test_config.py"],
    "__init__.py": ["repo/test_public_api.py", "repo/test_torch_free.py"],
}
"""Modules of the top, and others whose tests are where they are used."""
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change: the ``number``-th that can be made to a file.

    ``key`` is what it is known by, wherever its line has moved: the file, the function, the change, and which of
    several equal ones in that function it is.
    """

    file: str
    number: int
    line: int
    before: str
    after: str
    key: str


@dataclass(frozen=True)
class Change:
    """A node to be replaced, what replaces it, and the qualified name of the function or class that it is in."""

    node: ast.expr | ast.stmt
    changed: ast.AST
    scope: str


def changes(tree: ast.Module) -> Iterator[Change]:
    """Every change that can be made, always in the same order."""
    for node, scope in _executed(tree):
        if isinstance(node, (ast.expr, ast.stmt)):
            for target, changed in _changes_of(node):
                yield Change(target, changed, scope)


def _changes_of(node: ast.expr | ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    if isinstance(node, ast.expr):
        yield from ((node, changed) for changed in _expressions(node))
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield node, _with(node, value=ast.Constant(None))
    elif isinstance(node, (ast.AugAssign, ast.Raise)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await))
    ):
        yield node, ast.Pass()
    if isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
        yield node.test, ast.UnaryOp(ast.Not(), node.test)


def _expressions(node: ast.expr) -> Iterator[ast.AST]:
    """What an expression can be changed to."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        yield _with(node, ops=[_COMPARISONS[type(node.ops[0])]()])
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_text(node):
        yield _with(node, op=_ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _with(node, operand=ast.UnaryOp(ast.Not(), node.operand))
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield _with(node, value=node.value + 1)
        yield _with(node, value=node.value - 1)
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield _with(node, value=not node.value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SWAPPED:
        yield _with(node, func=ast.Name(_SWAPPED[node.func.id], ast.Load()))
    elif isinstance(node, ast.Call) and len(node.args) > 1:
        first, second, *others = node.args
        if ast.dump(first) != ast.dump(second) and not isinstance(first, ast.Starred):
            yield _with(node, args=[second, first, *others])


def _executed(node: ast.AST, scope: str = "") -> Iterator[tuple[ast.AST, str]]:
    """The nodes that run: no annotations, no assertions, which hold our own invariants, no code for type checkers."""
    if isinstance(node, (ast.Assert, ast.Import, ast.ImportFrom)) or (
        isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ):
        return
    yield node, scope
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        scope = f"{scope}.{node.name}".lstrip(".")
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list", "type_params"):
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, ast.AST):
                    yield from _executed(child, scope)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(node: ast.BinOp) -> bool:
    """Whether it formats or joins strings, or joins types, which is not arithmetic."""
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and not isinstance(side.value, (int, float)))
        for side in (node.left, node.right)
    )


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def mutants_of(root: Path, file: str) -> list[Mutant]:
    """Every change that can be made to a file."""
    found: list[Mutant] = []
    seen: Counter[str] = Counter()
    for number, change in enumerate(changes(ast.parse((root / file).read_text(encoding="utf-8")))):
        before, after = (ast.unparse(ast.fix_missing_locations(node)) for node in (change.node, change.changed))
        key = f"{file} {change.scope or 'module'}: {before} -> {after}"
        seen[key] += 1
        nth = f" (number {seen[key]})" if seen[key] > 1 else ""
        found.append(Mutant(file, number, change.node.lineno, before, after, key + nth))
    return found


def mutated(source: str, number: int) -> str:
    """The source with one change; its format and comments are lost, which no test looks at."""
    tree = ast.parse(source)
    chosen = next(change for at, change in enumerate(changes(tree)) if at == number)

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return chosen.changed if node is chosen.node else self.generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Replace().visit(tree)))


def tests_of(root: Path, file: str) -> list[str]:
    """The test files that mirror a module: those of its name, then the others of its folder."""
    inside = Path(file).relative_to(SOURCE)
    if str(inside) in _TESTED_ELSEWHERE:
        return [str(TESTS / name) for name in _TESTED_ELSEWHERE[str(inside)] if (root / TESTS / name).exists()]
    folder, stem = root / TESTS / inside.parent, inside.stem
    while folder != root / TESTS and not folder.is_dir():
        folder, stem = folder.parent, folder.name
    found = sorted(folder.rglob("test_*.py") if folder != root / TESTS else folder.glob("test_*.py"))
    found.sort(key=lambda path: stem not in path.stem)  # stable
    return [str(path.relative_to(root)) for path in found]


def sample(root: Path, count: int, rng: random.Random, only: str = "", but: Container[str] = ()) -> list[Mutant]:
    """As many mutants, whose keys are not in ``but``, from all packages alike: a large one has no more than a small."""
    packages: dict[str, list[Mutant]] = {}
    for path in sorted((root / SOURCE).rglob("*.py")):
        file = str(path.relative_to(root))
        if only in file and "templates" not in path.parts and tests_of(root, file):
            packages.setdefault(path.relative_to(root / SOURCE).parts[0], []).extend(
                mutant for mutant in mutants_of(root, file) if mutant.key not in but
            )
    chosen: list[Mutant] = []
    while len(chosen) < count and any(packages.values()):
        package = packages[rng.choice([name for name, left in packages.items() if left])]
        chosen.append(package.pop(rng.randrange(len(package))))
    return chosen


def run_tests(root: Path, tests: Sequence[str], seconds: float) -> bool:
    """Whether all tests pass in time."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    paths = os.pathsep.join([str(root / "core/src"), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        command, cwd=root, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            return process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            if process.poll() is None:  # too slow, or interrupted: its servers and workers go with it
                os.killpg(process.pid, signal.SIGKILL)


def survives(root: Path, mutant: Mutant, seconds: float) -> bool:
    """Whether the tests of its module pass with the mutant in place."""
    path = root / mutant.file
    source = path.read_text(encoding="utf-8")
    path.write_text(mutated(source, mutant.number), encoding="utf-8")
    try:
        return run_tests(root, tests_of(root, mutant.file), seconds)
    finally:
        path.write_text(source, encoding="utf-8")


def copied(folder: Path) -> Path:
    """The tracked files of the tree, in a new folder."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--only", default="", metavar="PATH", help="part of the path of the files to change")
    parser.add_argument("--seconds", type=float, default=60.0, help="that the tests of any mutant may take")
    options = parser.parse_args(arguments)
    accepted: dict[str, str] = json.loads(ACCEPTED.read_text(encoding="utf-8"))
    print(f"seed {options.seed}", flush=True)
    survivors, limits = [], dict[frozenset[str], float]()  # limits: seconds; 0 where the tests fail as they are
    with tempfile.TemporaryDirectory(prefix="octavo-mutants-") as folder:
        root = copied(Path(folder))
        for mutant in sample(root, options.count, random.Random(options.seed), options.only, accepted):
            tests = tests_of(root, mutant.file)
            if (group := frozenset(tests)) not in limits:
                begun = time.monotonic()
                passed = run_tests(root, tests, 3600)
                limits[group] = passed * max(options.seconds, 3 * (time.monotonic() - begun))
            if not limits[group]:
                verdict = "not tried: its tests fail without it"
            elif survives(root, mutant, limits[group]):
                verdict = "SURVIVED"
                survivors.append(mutant)
            else:
                verdict = "killed"
            print(f"{verdict}  {mutant.file}:{mutant.line}  {mutant.before} -> {mutant.after}", flush=True)
    for mutant in survivors:
        print(f"\n{mutant.file}:{mutant.line}\n  key: {mutant.key}\n  tests: {' '.join(tests_of(ROOT, mutant.file))}")
    print(f"{len(survivors)} survived (seed {options.seed})", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
