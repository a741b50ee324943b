"""G · ART: what a platform keeps of its work in the artifact store, and how little it may trust what it finds there."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from octavo_conformance.harness import refusal
from octavo_conformance.harness.engines import VOCAB
from octavo_conformance.harness.probe import Model, Probe
from octavo_conformance.harness.steps import Row, Seq, Step
from octavo_conformance.harness.target import Kept, Target
from octavo_conformance.judge import measure
from octavo_conformance.suite.check import Body, check
from octavo_conformance.suite.verdict import Verdict
from octavo_conformance.worker.host import CandidateRaised


@dataclass(frozen=True)
class Subject:
    """A model that sends each token to another: as ``permutation`` does, ``times`` over. Its checkpoint is a file."""

    permutation: tuple[int, ...]
    times: int = 1
    format: str | None = None

    def model(self, t: Target) -> Model:
        """The graph and its weights."""
        p = Probe(t, "artifacts")
        matrix = np.zeros((VOCAB, VOCAB), np.float32)
        matrix[list(self.permutation), np.arange(VOCAB)] = 1
        p.weight("turn.weight", matrix, self.format)
        x = p.rows("x", np.eye(VOCAB))
        for _ in range(self.times):
            x = p.build.linear(x, "turn", VOCAB)
        return p.read(x)

    def answers(self, tokens: Sequence[int]) -> list[int]:
        """What it makes of tokens."""
        made = list(tokens)
        for _ in range(self.times):
            made = [self.permutation[token] for token in made]
        return made


class Shop:
    """A folder for artifacts, checkpoints, and devices that are opened over them."""

    def __init__(self, t: Target, root: Path) -> None:
        self.t, self.root, self.folder = t, root, root / "artifacts"

    def checkpoint(self, subject: Subject, name: str = "model.bin") -> Path:
        """A file with the subject's weights."""
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(subject.permutation) + f" {subject.format}".encode())
        return path

    def life(
        self, subject: Subject, tokens: Sequence[int], *, at: Path | None = None, checkpoint: Path | None = None,
        t: Target | None = None, **keep: Any,
    ) -> tuple[list[int], Kept]:  # fmt: skip
        """One device's life over the folder: what it makes of the tokens, and what its store did."""
        t = t or self.t
        files = [str(checkpoint or self.checkpoint(subject))]
        step = Step((Seq(tuple(tokens)),), (Row(0, 0, len(tokens)),))
        played = t.play(subject.model(t), [step], keep={"folder": str(at or self.folder), "files": files, **keep})
        assert played.kept is not None
        return (np.asarray(played.results[0]).argmax(-1).tolist() if played.results else []), played.kept

    def entries(self) -> list[Path]:
        """The artifacts in the folder."""
        return sorted(self.folder.glob("*.artifact"))


@contextmanager
def shop(t: Target) -> Iterator[Shop]:
    """A shop that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="octavo-artifacts-") as root:
        yield Shop(t, Path(root))


def subject(t: Target, name: str = "model", times: int = 1) -> Subject:
    """One model of many."""
    return Subject(tuple(t.rng(name).permutation(VOCAB).tolist()), times)


def some(t: Target, name: str = "tokens", count: int = 8) -> list[int]:
    """Tokens to ask it with."""
    return [int(n) for n in t.rng(name).integers(0, VOCAB, count)]


def art(name: str, rules: tuple[str, ...], kills: tuple[str, ...], spec: str, **more: Any) -> Callable[[Body], Body]:
    """`check` for this family: it runs where the platform says that it keeps something."""
    return check(
        f"art.{name}", level="G", module="ART", since="1.0", rules=rules, kills=kills, spec=spec,
        requires=("targets", "op:embed", "op:linear", "op:take_rows"), cost=more.pop("cost", 0.5),
        grade=more.pop("grade", "mandatory"), **more,
    )  # fmt: skip


def right(name: str, subject: Subject, tokens: Sequence[int], found: Sequence[int]) -> Verdict:
    """X0 for a life."""
    return measure.integers(name, found, subject.answers(tokens))


@art(
    "warm_no_compile", ("X0", "C", "E"), ("M36.time",),
    """A platform that compiles for targets MUST keep what it makes in the store it is given, MUST make nothing at the
    second start, and MUST then serve under a policy that forbids making; over an empty folder that policy MUST end the
    start with ArtifactMissing.""",
)  # fmt: skip
def warm_no_compile(t: Target) -> Iterator[Verdict]:
    with shop(t) as s:
        model, tokens = subject(t), some(t)
        try:
            s.life(model, tokens, policy="require")
            missing = None
        except CandidateRaised as error:
            missing = error
        yield refusal.typed("nothing there, making forbidden", missing, "ArtifactMissing")
        yield measure.within("files after that", len(s.entries()), 0, 0)
        for name, low, high, policy in (
            ("first", 1, 1000, "use"),
            ("second", 0, 0, "use"),
            ("required", 0, 0, "require"),
        ):
            found, kept = s.life(model, tokens, policy=policy)
            yield right(name, model, tokens, found)
            yield measure.within(f"{name}: made", kept.made, low, high)
            yield measure.within(f"{name}: not kept", sum(e["file"] is None for e in kept.opened), 0, 0)
        target = t.capabilities.targets[0]
        _, kept = s.life(model, tokens, at=s.root / "ahead", policy="make", target=target)
        yield measure.within("ahead of time: made", kept.made, 1, 1000)
        found, kept = s.life(model, tokens, at=s.root / "ahead", policy="require")
        yield right("from what was made ahead of time", model, tokens, found)


@art(
    "key_sensitivity", ("X0", "C"), ("M36.graph", "M36.compiler"),
    """An artifact MUST not be served for another graph, weights, format or shape, and a key that differs in any one
    field MUST not find it, but for another compiler's of the same abi.""", cost=1.0,
)  # fmt: skip
def key_sensitivity(t: Target) -> Iterator[Verdict]:
    with shop(t) as s:
        base = subject(t)
        subjects = {"base": base, "another graph": Subject(base.permutation, 2), "other weights": subject(t, "other")}
        plain = [f for f in ("f32", "bf16", "f16") if t.declares(f"format:{f}") and f != t.plain_format]
        subjects |= {f"weights in {f}": Subject(base.permutation, 1, f) for f in plain}
        lives = [*subjects.items(), *reversed(subjects.items())]
        for turn, (name, one) in enumerate(lives):
            for count in (3, 40):  # another shape, where there are shapes
                tokens = some(t, f"{turn}/{count}", count)
                found, _ = s.life(one, tokens)
                yield right(f"life {turn}, {name}, {count} tokens", one, tokens, found)
        for field, counts in t.act("artifacts.flips", folder=str(s.folder)).items():
            yield measure.within(f"{field}: keys tried", counts["asked"], 1, 10_000)
            yield measure.within(f"{field}: served all the same", counts["served"], 0, 0)
        stamps = {entry["key"]["compiler"] for entry in s.life(base, some(t))[1].opened}
        yield measure.holds(
            "compiler named", all(any(c.isdigit() for c in x) for x in stamps), f"with a version: {stamps}"
        )


@art(
    "key_insensitivity", ("X0", "C"), ("M36.time",),
    """An artifact MUST be found again from another process, at another time, with the checkpoint under another name in
    another folder, and with anything in the environment that is none of the platform's.""", cost=1.5,
)  # fmt: skip
def key_insensitivity(t: Target) -> Iterator[Verdict]:
    with shop(t) as s:
        model, tokens = subject(t), some(t)
        s.life(model, tokens)
        elsewhere = s.checkpoint(model, "elsewhere/renamed.bin")
        os.utime(elsewhere, (1_000_000_000, 1_000_000_000))
        noise = {"HOSTNAME": "another", "USER": "somebody", "TZ": "Asia/Tokyo", "TMPDIR": str(s.root), "NOISE": "1"}
        with t.fresh() as other:
            for name, options in (
                ("checkpoint elsewhere", {"checkpoint": elsewhere}), ("noise", {"note": noise}),
                ("another process", {"t": other}), ("all of it", {"t": other, "checkpoint": elsewhere, "note": noise}),
            ):  # fmt: skip
                found, kept = s.life(model, tokens, **options)
                yield right(name, model, tokens, found)
                yield measure.within(f"{name}: made", kept.made, 0, 0)


@art(
    "relocate", ("X0", "C"), ("M36.time",),
    """A folder of artifacts MUST serve from wherever it is moved, copied or linked to.""",
)  # fmt: skip
def relocate(t: Target) -> Iterator[Verdict]:
    with shop(t) as s:
        model, tokens = subject(t), some(t)
        s.life(model, tokens)
        copied, moved, linked = s.root / "copied", s.root / "some" / "where" / "else", s.root / "linked"
        shutil.copytree(s.folder, copied)
        moved.parent.mkdir(parents=True)
        s.folder.rename(moved)
        linked.symlink_to(moved, target_is_directory=True)
        for name, at in (("copied", copied), ("moved", moved), ("linked", linked)):
            found, kept = s.life(model, tokens, at=at, policy="require")
            yield right(name, model, tokens, found)
            yield measure.within(f"{name}: made", kept.made, 0, 0)


@art(
    "atomic_publish", ("C", "X0"), ("M37.atomic",),
    """A process that is killed at any call while it writes an artifact MUST leave none or a whole one, and MUST not
    keep the next from writing it.""", cost=1.0,
)  # fmt: skip
def atomic_publish(t: Target) -> Iterator[Verdict]:
    with shop(t) as s:
        model, tokens = subject(t), some(t)
        s.life(model, tokens)
        fresh = s.root / "fresh"
        told = t.act("artifacts.killed", source=str(s.folder), folder=str(fresh))
        yield measure.within("calls at which it was killed", told["points"], 8, 200)
        yield measure.within("torn artifacts", told["torn"], 0, 0)
        yield measure.within("the last one ended by itself", told["ended"], 1, 1)
        yield measure.within("files left when all is over", told["left"], 0, 0)
        found, _ = s.life(model, tokens, at=fresh)
        yield right("afterwards", model, tokens, found)


@art(
    "concurrent_writers", ("C",), ("M37.lock",),
    """Of many processes that need an artifact at once one MUST make it, and all MUST get the same.""", cost=1.0,
)  # fmt: skip
def concurrent_writers(t: Target) -> Iterator[Verdict]:
    with shop(t) as s:
        s.life(subject(t), some(t))
        told = t.act(
            "artifacts.race", source=str(s.folder), folder=str(s.root / "fresh"), told=str(s.root / "told"), count=8
        )
        for what, amount in (("failed", 0), ("made", 1), ("contents", 1), ("files", 1)):
            yield measure.within(what, told[what], amount, amount)


def _replaced(path: Path, content: bytes) -> None:
    """Another file under the name; one that is mapped stays what it is."""
    path.unlink()
    path.write_bytes(content)


def _flipped(path: Path, at: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(at * (len(content) - 1))] ^= 0x40
    _replaced(path, bytes(content))


def _damaged() -> Mapping[str, Callable[[Path], None]]:
    return {
        "first byte": lambda path: _flipped(path, 0),
        "first byte of the data": lambda path: _at(path, 4096),
        "last byte": lambda path: _flipped(path, 1),
        "cut in half": lambda path: _replaced(path, path.read_bytes()[: path.stat().st_size // 2]),
        "one byte short": lambda path: _replaced(path, path.read_bytes()[:-1]),
        "one byte more": lambda path: _replaced(path, path.read_bytes() + b"\0"),
        "empty": lambda path: _replaced(path, b""),
        "zeros": lambda path: _replaced(path, bytes(path.stat().st_size)),
        "text": lambda path: _replaced(path, b"not an artifact at all\n" * 500),
    }


def _at(path: Path, byte: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 0x01
    _replaced(path, bytes(content))


@art(
    "corrupt_detect", ("X0", "C"), ("M37.corrupt",),
    """A file that was changed, cut, emptied, or is of another version MUST never be loaded: it is made again with a
    warning, and is whole afterwards.""", cost=1.5,
)  # fmt: skip
def corrupt_detect(t: Target) -> Iterator[Verdict]:
    with shop(t) as s:
        model, tokens = subject(t), some(t)
        s.life(model, tokens)
        ways: dict[str, Callable[[], Any]] = {
            name: lambda damage=damage: [damage(path) for path in s.entries()]  # type: ignore[misc]
            for name, damage in _damaged().items()
        }
        ways["another version"] = lambda: t.act("artifacts.version", folder=str(s.folder))
        for name, damage in ways.items():
            files = len(s.entries())
            damage()
            found, kept = s.life(model, tokens)
            yield right(name, model, tokens, found)
            yield measure.within(f"{name}: made again", kept.made, files, files)
            yield measure.within(f"{name}: warnings", len(kept.warnings), files, 10 * files)
            _, after = s.life(model, tokens, policy="require")
            yield measure.within(f"{name}: made after that", after.made, 0, 0)


@art(
    "foreign_arch_refused", ("X0", "C", "E"), ("M37.foreign",),
    """An artifact for another device, platform, graph or rank MUST not be used, even under the name of the right one;
    and a target that the platform does not declare MUST be refused.""", cost=1.0,
)  # fmt: skip
def foreign_arch_refused(t: Target) -> Iterator[Verdict]:
    with shop(t) as s:
        model, tokens = subject(t), some(t)
        s.life(model, tokens)
        for field in ("device", "platform", "graph", "mesh", "kind"):
            files = len(s.entries())
            t.act("artifacts.rewrite", folder=str(s.folder), field=field, renamed=False)
            found, kept = s.life(model, tokens)
            yield right(f"another {field}", model, tokens, found)
            yield measure.within(f"another {field}: made again", kept.made, files, files)
            yield measure.within(f"another {field}: warnings", len(kept.warnings), files, 10 * files)
    yield refusal.typed("no such target", refusal.ahead(t, "no-such-target"), "OctavoError", "no-such-target")


@art(
    "stale_index", ("X0", "C"), ("M36.compiler",),
    """What another version of the compiler made MUST be used with a warning where the platform promises that it runs
    (one abi), and else made again; what dead processes left (locks, unfinished files) MUST be no hindrance.""",
)  # fmt: skip
def stale_index(t: Target) -> Iterator[Verdict]:
    with shop(t) as s:
        model, tokens = subject(t), some(t)
        _, first = s.life(model, tokens)
        promised = sum(bool(entry["key"]["abi"]) for entry in first.opened)
        t.act("artifacts.rewrite", folder=str(s.folder), field="compiler", renamed=True)
        for path in s.entries():
            path.with_suffix(".lock").touch()
            path.with_suffix(".tmp").write_bytes(b"unfinished")
        found, kept = s.life(model, tokens)
        yield right("of another compiler", model, tokens, found)
        made = len(first.opened) - promised
        yield measure.within("made again", kept.made, made, made, note=f"{promised} of {len(first.opened)} have an abi")
        yield measure.within("warnings", len(kept.warnings), promised, 10 * len(first.opened))
        found, kept = s.life(model, tokens, policy="make")
        yield right("made anew", model, tokens, found)
        yield measure.within("made where stale ones are not wanted", kept.made, promised, promised)


def _listing(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in folder.iterdir())


@art(
    "readonly_store", ("X0", "C"), ("M37.writes",),
    """A store that must not be written to MUST serve what it has, MUST stay as it is, and what it lacks MUST be made in
    memory, with a warning.""",
)  # fmt: skip
def readonly_store(t: Target) -> Iterator[Verdict]:
    with shop(t) as s:
        model, other, tokens = subject(t), subject(t, "other", 2), some(t)
        s.life(model, tokens)
        before = _listing(s.folder)
        found, kept = s.life(model, tokens, writable=False)
        yield right("what it has", model, tokens, found)
        yield measure.within("what it has: made", kept.made, 0, 0)
        found, kept = s.life(other, tokens, writable=False)
        yield right("what it lacks", other, tokens, found)
        yield measure.within("what it lacks: made", kept.made, 1, 1000)
        yield measure.within("what it lacks: warnings", len(kept.warnings), 1, 100)
        yield measure.holds("unchanged", _listing(s.folder) == before, f"{len(before)} files, their sizes and times")


@art(
    "full_disk", ("X0", "C"), ("M37.full",),
    """Where the disk is full, at once or half way, or the limit is reached, a platform MUST serve without keeping, say
    so, and leave no part of a file.""",
)  # fmt: skip
def full_disk(t: Target) -> Iterator[Verdict]:
    with shop(t) as s:
        model, tokens = subject(t), some(t)
        faults: tuple[tuple[str, dict[str, Any]], ...] = (
            ("full at once", {"full": 0}), ("full half way", {"full": 6000}), ("over the limit", {"limit": 1000}),
        )  # fmt: skip
        for name, keep in faults:
            found, kept = s.life(model, tokens, **keep)
            yield right(name, model, tokens, found)
            yield measure.within(f"{name}: warnings", len(kept.warnings), 1, 1000)
            left = sorted(p.name for p in s.folder.iterdir()) if s.folder.exists() else []
            yield measure.within(f"{name}: files left", len(left), 0, 0, note=", ".join(left))
        found, _ = s.life(model, tokens)
        yield right("with room again", model, tokens, found)
        yield measure.within("with room again: files", len(s.entries()), 1, 1000)


@art(
    "eviction_safe", ("X0", "C"), ("M37.evict",),
    """Making room MUST not hurt who uses an artifact: a device MUST serve on when all that may be deleted is; what
    nobody uses MUST go, and a store MUST stay within its limit.""",
)  # fmt: skip
def eviction_safe(t: Target) -> Iterator[Verdict]:
    with shop(t) as s:
        model, other, tokens = subject(t), subject(t, "other", 2), some(t)
        found, first = s.life(other, tokens)
        yield right("before", other, tokens, found)
        found, _ = s.life(model, tokens, evict=True)
        yield right("while all are to be deleted", model, tokens, found)
        ids = {path.stem for path in s.entries()}
        gone = [e for e in first.opened if e["id"] not in ids]
        yield measure.within("files that nobody used and are gone", len(gone), len(first.opened), len(first.opened))
        size = 2 * max((p.stat().st_size for p in s.entries()), default=10_000)
        for i in range(6):
            one = subject(t, str(i), 1 + i % 2)
            found, _ = s.life(one, tokens, limit=size)
            yield right(f"limited, {i}", one, tokens, found)
        total = sum(path.stat().st_size for path in s.entries())
        yield measure.within("bytes under the limit", total, 1, size)


@art(
    "untrusted_refused", ("X0", "C"), ("M37.trust",),
    """A file that anybody may write to MUST not be used, and nothing in a file MUST be run while it is read: a pickle
    in place of an artifact is not one.""",
)  # fmt: skip
def untrusted_refused(t: Target) -> Iterator[Verdict]:
    with shop(t) as s:
        model, tokens = subject(t), some(t)
        s.life(model, tokens)
        files = len(s.entries())
        for path in s.entries():
            path.chmod(0o666)
        found, kept = s.life(model, tokens)
        yield right("writable by anybody", model, tokens, found)
        yield measure.within("writable by anybody: made again", kept.made, files, files)
        marker = s.root / "was run"
        for path in s.entries():
            _replaced(path, pickle.dumps(_Trap(str(marker))))
        found, kept = s.life(model, tokens)
        yield right("a pickle", model, tokens, found)
        yield measure.within("a pickle: made again", kept.made, files, files)
        yield measure.holds("a pickle: not run", not marker.exists(), "the file that it would have made is not there")


class _Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return open, (self.path, "w")


@art(
    "reproducible_build", ("C",), (),
    """The same model SHOULD give the same files, byte for byte, in two folders; a platform MUST at least give them the
    same names.""", grade="informational",
)  # fmt: skip
def reproducible_build(t: Target) -> Iterator[Verdict]:
    with shop(t) as s:
        model, tokens = subject(t), some(t)
        s.life(model, tokens)
        s.life(model, tokens, at=s.root / "again")
        one, two = s.entries(), sorted((s.root / "again").glob("*.artifact"))
        yield measure.holds("names", [p.name for p in one] == [p.name for p in two], f"{len(one)} files")
        differing = sum(a.read_bytes() != b.read_bytes() for a, b in zip(one, two, strict=False))
        yield measure.within("files that differ", differing, 0, 0)
