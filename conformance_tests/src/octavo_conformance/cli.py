"""``octavo conformance``: prove a platform, and check the proofs of others.

Exit codes: 0 certifiable (or: the bundle is sound), 1 a check failed (the bundle is not), 2 the suite is at fault, 3
clean but not certifying, 4 the platform cannot be had, or the question makes no sense.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from octavo.errors import OctavoError
from octavo.platform import Rank
from octavo_conformance import bundle as bundles
from octavo_conformance import lock, report, suite_version
from octavo_conformance import mutants as planted
from octavo_conformance.certificate import Result, conclude
from octavo_conformance.check import LEVELS, PROFILES, Check
from octavo_conformance.judge.tol import TIERS
from octavo_conformance.record import Judged, Record, judge
from octavo_conformance.registry import catalogue
from octavo_conformance.runner import Run, Selection, run, run_check
from octavo_conformance.status import Status
from octavo_conformance.worker.host import CandidateDied, CandidateHung, CandidateRaised, Worker

FAILED, UNUSABLE = 1, 4

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Prove that a platform is right, and check the proofs of others.",
)

Platform = Annotated[str, typer.Option(help="Which platform; see: octavo platforms.")]
Tier = Annotated[str, typer.Option(help="Accuracy tier: A0, A1 or A2, the strictest.")]
Seed = Annotated[str, typer.Option(help="What the inputs are made from.")]
Threads = Annotated[int | None, typer.Option(help="Host cores that the device may keep busy.")]
BundlePath = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A .tgz that run or certify wrote.")]
Out = Annotated[Path, typer.Option(help="Folder for the bundle and the reports.")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; ``octavo conformance`` passes on what follows it."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="octavo conformance")
    except OctavoError as error:
        sys.stderr.write(f"octavo: {error}\n")
        raise SystemExit(UNUSABLE) from None


@app.command("list")
def list_checks(
    level: Annotated[str | None, typer.Option(help="One level or module.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Every check with what it demands."""
    checks = [c for c in catalogue().values() if level in (None, c.level)]
    if as_json:
        typer.echo(json.dumps([_facts(c) for c in checks], indent=1))
        return
    for at in LEVELS:
        members = [c for c in checks if c.level == at]
        if members:
            typer.echo(f"{at}: {len(members)} checks")
        for c in members:
            typer.echo(f"  {c.id}  [{c.grade}, {c.profile if c.built else 'not built yet'}]  {c.spec}")


def _facts(check: Check) -> dict[str, Any]:
    return {
        "id": check.id, "level": check.level, "module": check.module, "since": check.since, "grade": check.grade,
        "requires": check.requires, "rules": check.rules, "kills": check.kills, "profile": check.profile,
        "built": check.built, "spec": check.spec,
    }  # fmt: skip


@app.command("run")
def run_checks(
    platform: Platform,
    profile: Annotated[str, typer.Option(help="quick, standard or full.")] = "quick",
    levels: Annotated[str, typer.Option(help="Levels to run, with commas; all by default.")] = "",
    only: Annotated[
        list[str] | None, typer.Option("--check", help="A check, or with a dot at the end a family; may repeat.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Seconds; what does not fit is NOT_RUN.")] = None,
    tier: Tier = "A1",
    seed: Seed = "0",
    threads: Threads = None,
    out: Out = Path("conformance"),
    baseline: Annotated[Path | None, typer.Option(help="A bundle to compare with.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that one request to the device may take.")] = 300.0,
) -> None:
    """Run the checks against a platform and write a bundle and reports."""
    wanted = Selection(
        _one_of(profile, PROFILES, "--profile"),
        tuple(_one_of(part, LEVELS, "--levels") for part in levels.split(",") if part),
        tuple(_known(name) for name in only or ()),
        budget,
    )
    _run(platform, wanted, _one_of(tier, tuple(TIERS), "--tier"), seed, threads, out, baseline, timeout)


@app.command()
def certify(
    platform: Platform,
    tier: Tier = "A1",
    threads: Threads = None,
    challenge: Annotated[str | None, typer.Option(help="A verifier's seed; a random one if left out.")] = None,
    out: Out = Path("conformance"),
) -> None:
    """Run everything there is, and write the bundle to show. Nothing can be left out."""
    seed = challenge or secrets.token_hex(8)
    _run(platform, Selection("full"), _one_of(tier, tuple(TIERS), "--tier"), seed, threads, out, None, 300.0)


def _run(
    platform: str, wanted: Selection, tier: str, seed: str, threads: int | None, out: Path, baseline: Path | None,
    timeout: float,
) -> NoReturn:  # fmt: skip
    started = time.monotonic()

    def told(record: Record, check: Check) -> None:
        if record.mode != "not run":
            _tell(judge(record, check, tier))

    try:
        done = run(platform, wanted, seed=seed, tier=tier, threads=threads, timeout=timeout, told=told)
    except (CandidateRaised, CandidateDied, CandidateHung) as error:
        typer.echo(f"octavo: platform {platform} cannot be had: {_first_line(error)}", err=True)
        raise typer.Exit(UNUSABLE) from None
    result = _concluded(done)
    path = bundles.write(done, result, out)
    _write_reports(bundles.read(path), result, out, ("md", "html", "junit", "badge"))
    if baseline is not None:
        old, before, _ = bundles.verify(baseline)
        typer.echo(report.differences((old, before), (bundles.read(path), result)))
    typer.echo(f"\n{result.line}: {result.verdict} in {time.monotonic() - started:.0f} s")
    for gap in result.gaps:
        typer.echo(f"does not certify: {gap}")
    typer.echo(f"bundle: {path}")
    raise typer.Exit(result.exit_code)


def _concluded(done: Run) -> Result:
    checks = catalogue()
    return conclude(
        done.records, checks, tier=done.tier, profile=done.selection.profile, whole=done.selection.whole,
        differences=lock.differences(lock.installed(), checks), mutant=done.mutant,
    )  # fmt: skip


def _tell(judged: Judged) -> None:
    """A line for each check; for a bad one also why."""
    record = judged.record
    typer.echo(f"{judged.status.name:<11}{record.id}  ({len(judged.cases)} cases, {record.seconds:.1f} s)")
    for reason in judged.reasons:
        typer.echo("           " + reason.rstrip().replace("\n", "\n           "))
    for case in judged.cases:
        if case.reasons:
            typer.echo(f"           {case.case}: {'; '.join(case.reasons)}")


@app.command()
def explain(check_id: Annotated[str, typer.Argument(metavar="CHECK")]) -> None:
    """Tell what a check demands. By which rules it is judged, and which faults it catches."""
    check = catalogue()[_known(check_id, family=False)]
    typer.echo(f"{check.id} ({check.level} {check.module}, {check.grade}, since {check.since})\n\n{check.spec}\n")
    if check.requires:
        typer.echo(f"Runs where declared: {', '.join(check.requires)}; else the refusal is checked.")
    if not check.built:
        typer.echo("Not built yet.")
        return
    typer.echo("Rules:")
    for rule in check.rules:
        typer.echo(f"  {rule}: {RULES[rule.partition('(')[0]]}")
    for check_id, mutant in planted.catalogue().items():
        if check.id in mutant.killed_by:
            typer.echo(f"Catches {check_id}: {mutant.fault}.")


RULES = {
    "B0": "bytes are equal",
    "X0": "integers recovered from a probe are the expected ones",
    "U": "at most so many units in the last place from the truth",
    "R": "the error against float64 is at most the tier's multiple of that of a reference of the same precision: "
    + "; ".join(f"{name} {t.rms:g} rms, {t.largest:g} largest, {t.row:g} row" for name, t in TIERS.items()),
    "Q": "codes are the expected ones, but for ties; scales to one unit in the last place",
    "S": "a hypothesis test that has the power to see a stated shift does not reject",
    "C": "an amount lies within its bounds",
    "E": "the typed refusal or error, naming what was refused",
    "M": "two runs of the platform agree",
}


@app.command()
def repro(
    bundle: BundlePath,
    which: Annotated[str, typer.Argument(metavar="CHECK[:CASE]", help="From its recorded seed, on this machine.")],
    platform: Annotated[str | None, typer.Option(help="Another platform than the bundle's.")] = None,
) -> None:
    """Run one check of a bundle again, with the same inputs."""
    read = bundles.read(bundle)
    check_id, _, case = which.partition(":")
    check = catalogue()[_known(check_id, family=False)]
    with Worker(platform or read.platform, mutant=str(read.statement["mutant"])) as worker:
        record = run_check(check, lambda: worker, str(read.statement["seed"]), Rank())
    judged = judge(record, check, str(read.statement["tier"]))
    _tell(judged)
    shown = [(v, s) for v, s in zip(record.verdicts, judged.cases, strict=True) if case in ("", v.case)]
    for verdict, status in shown:
        metrics = ", ".join(f"{name} {value:.6g}" for name, value in verdict.metrics.items())
        typer.echo(f"{status.status.name:<11}{verdict.case}  [{verdict.rule}]  {metrics}")
    if not shown:
        raise OctavoError(f"{check_id} has no case {case!r}; it has {', '.join(v.case for v in record.verdicts)}")
    raise typer.Exit(FAILED if Status.worst(s.status for _, s in shown) >= Status.FAIL else 0)


@app.command()
def verify(
    bundle: BundlePath,
    strict: Annotated[bool, typer.Option("--strict", help="Also fail where it does not certify.")] = False,
) -> None:
    """Recompute every verdict of a bundle from its measurements. Needs neither the platform nor its machine."""
    read, result, found = bundles.verify(bundle)
    typer.echo(f"{result.line} ({read.statement['trust']}): {result.verdict}")
    for text in found:
        typer.echo(f"wrong: {text}")
    for gap in result.gaps:
        typer.echo(f"does not certify: {gap}")
    raise typer.Exit(FAILED if found or (strict and result.exit_code) else 0)


@app.command("report")
def make_report(
    bundle: BundlePath,
    out: Out = Path("conformance"),
    markdown: Annotated[bool, typer.Option("--md", help="Markdown.")] = False,
    html: Annotated[bool, typer.Option("--html", help="HTML.")] = False,
    junit: Annotated[bool, typer.Option("--junit", help="JUnit XML.")] = False,
    badge: Annotated[bool, typer.Option("--badge", help="An SVG badge.")] = False,
) -> None:
    """Write reports of a bundle; all of them if none is named."""
    kinds = [k for k, wanted in (("md", markdown), ("html", html), ("junit", junit), ("badge", badge)) if wanted]
    read, result, _ = bundles.verify(bundle)
    for path in _write_reports(read, result, out, kinds or ("md", "html", "junit", "badge")):
        typer.echo(str(path))


def _write_reports(read: bundles.Bundle, result: Result, out: Path, kinds: Sequence[str]) -> list[Path]:
    checks = catalogue()
    page = report.markdown(read, result, checks)
    made = {
        "md": ("report.md", page),
        "html": ("report.html", report.html(page)),
        "junit": ("junit.xml", report.junit(result, checks, read.profile)),
        "badge": ("badge.svg", report.badge(result)),
    }
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind in kinds:
        name, text = made[kind]
        paths.append(out / name)
        paths[-1].write_text(text, encoding="utf-8")
    return paths


@app.command()
def diff(old: BundlePath, new: BundlePath) -> None:
    """What changed from one bundle to another."""
    typer.echo(report.differences(*((b, r) for b, r, _ in (bundles.verify(old), bundles.verify(new)))))


@app.command()
def matrix(files: Annotated[list[Path], typer.Argument(metavar="BUNDLE...")]) -> None:
    """Checks down, platforms across."""
    typer.echo(report.matrix([(b, r) for b, r, _ in map(bundles.verify, files)]))


@app.command()
def mutants(
    platform: Platform = "reference",
    only: Annotated[str, typer.Option(help="Mutants, with commas; all by default.")] = "",
    tier: Tier = "A1",
    threads: Threads = None,
) -> None:
    """Plant every known fault and see that it is caught.

    The checks that are named for a fault must fail with it, and none without one.
    """
    known = planted.catalogue()
    chosen = {name: known[name] for name in known if not only or name in only.split(",")}
    if not chosen:
        raise OctavoError(f"there is no mutant {only}; there are {', '.join(known)}")
    killers = tuple(sorted({name for mutant in chosen.values() for name in mutant.killed_by}))
    ended = _statuses(platform, killers, tier, "", threads)
    survived = [platform] if any(status >= Status.FAIL for status in ended.values()) else []
    _tell_statuses("WRONG" if survived else "clean", platform, ended)
    for name, mutant in chosen.items():
        ended = _statuses(platform, mutant.killed_by, tier, name, threads)
        alive = not ended or any(status is not Status.FAIL for status in ended.values())
        _tell_statuses("SURVIVED" if alive else "killed", name, ended)
        survived += [name] if alive else []
    raise typer.Exit(FAILED if survived else 0)


def _statuses(platform: str, names: tuple[str, ...], tier: str, mutant: str, threads: int | None) -> dict[str, Status]:
    """How the named checks that are built end, with a fault planted."""
    checks = catalogue()
    built = tuple(name for name in names if name in checks and checks[name].built)
    if not built:
        return {}
    done = run(platform, Selection("full", only=built), tier=tier, mutant=mutant, threads=threads)
    return {r.id: judge(r, checks[r.id], tier).status for r in done.records if r.mode != "not run"}


def _tell_statuses(verdict: str, name: str, ended: Mapping[str, Status]) -> None:
    told = ", ".join(f"{check} {status.name}" for check, status in ended.items())
    typer.echo(f"{verdict:<9}{name}: {told or 'none of its checks is built'}")


@app.command("lock")
def write_lock(write: Annotated[bool, typer.Option("--write", help="Replace the list.")] = False) -> None:
    """Compare the checks with the frozen list. For maintainers of the suite."""
    checks = catalogue()
    if write:
        path = Path(__file__).parent / "checks.lock"
        path.write_text(lock.text(checks.values()), encoding="utf-8")
        typer.echo(f"{path}: {len(checks)} checks, suite {suite_version()}")
        return
    found = lock.differences(lock.installed(), checks)
    for text in found:
        typer.echo(text)
    raise typer.Exit(FAILED if found else 0)


def _one_of(value: str, known: Sequence[Any], flag: str) -> Any:
    if value not in known:
        raise OctavoError(f"{flag} {value} is not known; choose of {', '.join(known)}")
    return value


def _known(name: str, *, family: bool = True) -> str:
    """A check's id, or the beginning of some."""
    checks = catalogue()
    if name in checks or (family and name.endswith(".") and any(c.startswith(name) for c in checks)):
        return name
    raise OctavoError(f"there is no check {name}; see: octavo conformance list")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
