"""The mutation driver: it makes the changes that it says, tells killed from surviving, and leaves the tree alone."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "mutants.py"
TOY = '''"""A toy."""
LIMIT: int = 3


def allowed(count: int, extra: int = 0) -> bool:
    """Whether it fits."""
    if count < 0:
        raise ValueError("negative")
    return count + extra <= LIMIT


def left(count: int, limit: int = 3) -> int:
    """How many more fit."""
    if not_allowed := not allowed(count):
        return 0
    return max(limit - count, int("0", 10) if not_allowed else 0)
'''
TESTS = """
import pytest
from octavo.toy.limits import allowed

def test_it() -> None:
    assert allowed(3) and not allowed(4)
    with pytest.raises(ValueError, match="negative"):
        allowed(-1)
"""


@pytest.fixture(scope="module")
def driver() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    for name, text in (("core/src/octavo/toy/limits.py", TOY), ("core/tests/toy/test_limits.py", TESTS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for package in ("octavo", "octavo/toy"):
        (tmp_path / "core/src" / package / "__init__.py").touch()
    return tmp_path


FILE = "core/src/octavo/toy/limits.py"


def test_each_change_is_one_and_parses(driver: ModuleType, toy: Path) -> None:
    mutants = driver.mutants_of(toy, FILE)
    made = {(m.before, m.after) for m in mutants}
    assert ("count < 0", "count <= 0") in made
    assert ("count + extra", "count - extra") in made
    assert ("3", "4") in made
    assert ("raise ValueError('negative')", "pass") in made
    assert ("3", "2") in made
    assert ("return count + extra <= LIMIT", "return None") in made
    assert ("int('0', 10)", "int(10, '0')") in made
    assert ("(not_allowed := (not allowed(count)))", "not (not_allowed := (not allowed(count)))") in made
    sources = {driver.mutated(TOY, m.number) for m in mutants}
    assert len(sources) == len(mutants)
    assert len(driver.mutated(TOY, mutants[0].number).splitlines()) <= len(TOY.splitlines())


def test_the_killed_and_the_surviving_are_told_apart(driver: ModuleType, toy: Path) -> None:
    assert driver.tests_of(toy, FILE) == ["core/tests/toy/test_limits.py"]
    assert driver.run_tests(toy, driver.tests_of(toy, FILE), 60)
    killed = [("count + extra <= LIMIT", "count + extra < LIMIT"), ("raise ValueError('negative')", "pass")]
    survive = [
        ("count + extra", "count - extra"),  # no test gives an extra
        ("count < 0", "count <= 0"),  # none asks for 0
        ("return 0", "return None"),  # none asks what is left
    ]
    mutants = {(m.before, m.after): m for m in driver.mutants_of(toy, FILE)}
    assert [driver.survives(toy, mutants[change], 60) for change in killed] == [False, False]
    assert [driver.survives(toy, mutants[change], 60) for change in survive] == [True, True, True]
    assert (toy / FILE).read_text() == TOY


def test_a_sample_follows_from_its_seed(driver: ModuleType, toy: Path) -> None:
    first, again = (driver.sample(toy, 3, random.Random(7)) for _ in range(2))
    assert first == again and len(set(first)) == 3


def test_what_is_accepted_is_one_mutant_and_is_not_sampled(driver: ModuleType, toy: Path) -> None:
    mutants = driver.mutants_of(toy, FILE)
    equal = [mutant.key for mutant in mutants if (mutant.before, mutant.after) == ("0", "1")]
    assert equal == [
        f"{FILE} allowed: 0 -> 1",
        f"{FILE} allowed: 0 -> 1 (number 2)",
        f"{FILE} left: 0 -> 1",
        f"{FILE} left: 0 -> 1 (number 2)",
    ]
    rest = driver.sample(toy, 10**6, random.Random(1), but={equal[1]})
    assert {mutant.key for mutant in rest} == {mutant.key for mutant in mutants} - {equal[1]}


def test_every_accepted_mutant_is_still_there_and_has_a_reason(driver: ModuleType) -> None:
    accepted = json.loads(driver.ACCEPTED.read_text())
    files = {key.partition(" ")[0] for key in accepted}
    keys = {mutant.key for file in files for mutant in driver.mutants_of(driver.ROOT, file)}
    assert set(accepted) - keys == set(), "the code changed: take them off the list, or give their new keys"
    assert all(len(reason.split()) > 3 for reason in accepted.values())
