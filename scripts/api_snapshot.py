"""The public API as data: every public name of the packages that users and plugins import, with its signature.

    api_snapshot.py            print how the code differs from the committed snapshot; status 1 if it does
    api_snapshot.py --write    commit to the API as it is now

A test compares the code with the snapshot, so no signature changes by accident. The contract and the dialect carry
versions: a change of theirs is written only with a new version, or with --unreleased while that version
has not been released.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import enum
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType, UnionType
from typing import Any, ForwardRef

SNAPSHOT = Path(__file__).parents[1] / "core" / "tests" / "repo" / "api_snapshot.json"

# Public packages; for those with a version of their own, the constant that holds it.
PUBLIC: Mapping[str, str | None] = {
    "octavo": None,
    "octavo.errors": None,
    "octavo.graph": "DIALECT",
    "octavo.platform": "CONTRACT",
    "octavo.platform.hookspecs": None,
    "octavo.quant": None,
    "octavo.text.parsing.reasoning": None,
    "octavo.text.parsing.tools": None,
}

Surface = dict[str, dict[str, list[str]]]  # package -> name -> what it promises, one line each


def collect() -> Surface:
    """The public surface of the code that is importable now."""
    return {package: _package(importlib.import_module(package)) for package in PUBLIC}


def _package(module: ModuleType) -> dict[str, list[str]]:
    names = getattr(module, "__all__", None)
    if names is None:  # a plain module such as octavo.errors: what it defines is what it offers
        names = [n for n, v in vars(module).items() if not n.startswith("_") and _defined_in(v, module)]
    return {name: list(_describe(getattr(module, name))) for name in sorted(names) if name != "__version__"}


def _defined_in(value: object, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _describe(value: object) -> Iterator[str]:
    if isinstance(value, type):
        yield from _describe_class(value)
    elif isinstance(value, ModuleType):
        yield "module"
    elif hasattr(value, "__origin__") or isinstance(value, UnionType):
        yield f"= {value}"  # a type alias
    elif callable(value) and hasattr(value, "__name__"):
        yield _signature(value)
    elif isinstance(value, (str, int, float, bool)):
        yield f"= {value!r}"
    elif isinstance(value, Mapping):
        yield from (f"[{key!r}]{_entry(item)}" for key, item in value.items())
    else:
        yield f"a {type(value).__name__}"


def _describe_class(cls: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    yield f"class({bases})" if bases else "class"
    if issubclass(cls, enum.Enum):
        yield from (f"{member.name} = {member.value!r}" for member in cls)
    elif dataclasses.is_dataclass(cls):
        frozen = cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
        yield f"dataclass(frozen={frozen})"
        yield from (_field(field) for field in dataclasses.fields(cls))
    elif hasattr(cls, "_field_defaults"):  # NamedTuple
        yield from (
            f"{name}: {_annotation(note)}{_default(cls._field_defaults.get(name, inspect.Parameter.empty))}"
            for name, note in inspect.get_annotations(cls).items()
        )
    else:
        yield from (
            f"{name}: {_annotation(note)}"
            for name, note in inspect.get_annotations(cls).items()
            if not name.startswith("_")
        )
        if "__init__" in vars(cls) and isinstance(vars(cls)["__init__"], FunctionType) and not _is_protocol(cls):
            yield _signature(vars(cls)["__init__"])
    yield from _members(cls)


def _is_protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def _members(cls: type) -> Iterator[str]:
    fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    for name, member in sorted(vars(cls).items()):
        if name.startswith("_") or name in fields:  # a function may be a field's default
            continue
        if isinstance(member, (staticmethod, classmethod)):
            yield f"@{type(member).__name__} {_signature(member.__func__)}"
        elif isinstance(member, property):
            returns = inspect.signature(member.fget).return_annotation if member.fget else inspect.Signature.empty
            yield f"@property {name}: {_annotation(returns)}"
        elif isinstance(member, FunctionType):
            yield _signature(member)


def _field(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        default = _default(field.default)
    else:
        default = " = ..." if field.default_factory is not dataclasses.MISSING else ""
    return f"{field.name}: {_annotation(field.type)}{default}{'' if field.init else '  (not in __init__)'}"


def _signature(function: Callable[..., object]) -> str:
    """``def name(a: int, /, b: str = 'x', *, c) -> bool``, the same text on every Python that Octavo supports."""
    signature = inspect.signature(function)
    parts: list[str] = []
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    for index, parameter in enumerate(signature.parameters.values()):
        first_keyword = parameter.kind is parameter.KEYWORD_ONLY and parameter.kind not in kinds[:index]
        if first_keyword and parameter.VAR_POSITIONAL not in kinds:
            parts.append("*")
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        star = "**" if parameter.kind is parameter.VAR_KEYWORD else star
        note = "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
        parts.append(f"{star}{parameter.name}{note}{_default(parameter.default)}")
        last_positional = parameter.kind is parameter.POSITIONAL_ONLY and parameter.kind not in kinds[index + 1 :]
        if last_positional:
            parts.append("/")
    kind = "async def" if inspect.iscoroutinefunction(function) else "def"
    return f"{kind} {function.__name__}({', '.join(parts)}) -> {_annotation(signature.return_annotation)}"


def _annotation(note: object) -> str:
    if note is inspect.Signature.empty:
        return "?"
    if isinstance(note, str):
        return note
    if isinstance(note, ForwardRef):
        return note.__forward_arg__
    return note.__name__ if isinstance(note, type) and not hasattr(note, "__args__") else str(note)


def _entry(value: object) -> str:
    """An entry of a registry: an op by its one-line schema, which is what platforms implement."""
    schema = getattr(value, "schema", None)
    return f" {schema}" if isinstance(schema, str) else _default(value)


def _default(value: object) -> str:
    if value is inspect.Parameter.empty:
        return ""
    if isinstance(value, enum.Enum):
        return f" = {type(value).__name__}.{value.name}"
    if isinstance(value, frozenset):
        return f" = frozenset({sorted(value)})"
    if value is None or isinstance(value, (str, bytes, int, float, tuple)):
        return f" = {value!r}"
    return f" = a {type(value).__name__}"


def load() -> Surface:
    """The committed snapshot; empty packages where there is none yet."""
    if not SNAPSHOT.exists():
        return {package: {} for package in PUBLIC}
    committed: Surface = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    return committed


def difference(committed: Surface, current: Surface) -> str:
    """A readable diff, empty when they agree."""
    return "\n".join(
        difflib.unified_diff(_lines(committed), _lines(current), "committed", "the code", n=0, lineterm="")
    )


def _lines(surface: Surface) -> list[str]:
    return [
        f"{package}.{name} {line}"
        for package, names in sorted(surface.items())
        for name, lines in sorted(names.items())
        for line in lines
    ]


def unversioned_changes(committed: Surface, current: Surface) -> list[str]:
    """``package.CONSTANT`` of each package that changed while its version stayed."""
    return [
        f"{package}.{constant}"
        for package, constant in PUBLIC.items()
        if constant is not None
        and (old := committed.get(package))
        and old != current[package]
        and old.get(constant) == current[package].get(constant)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the snapshot")
    parser.add_argument("--unreleased", action="store_true", help="the versions of the changed parts are not out yet")
    options = parser.parse_args(arguments)
    committed, current = load(), collect()
    changes = difference(committed, current)
    if not options.write:
        print(changes or "The public API is as committed.")
        return 1 if changes else 0
    stale = [] if options.unreleased else unversioned_changes(committed, current)
    if stale:
        print(changes)
        print(
            f"\nThe API changed and {' and '.join(stale)} did not: raise the minor for an addition, the major for any "
            "other change. If that version was never released, use --unreleased.",
            file=sys.stderr,
        )
        return 1
    SNAPSHOT.write_text(json.dumps(current, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"Wrote {SNAPSHOT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
