"""``octavo conformance``: prove a platform, and check the proofs of others.

Exit codes: 0 certifiable (or: the bundle is sound), 1 a check failed (the bundle is not), 2 the suite is at fault, 3
clean but not certifying, 4 the platform cannot be had, or the question makes no sense.
"""

from __future__ import annotations

import difflib
import json
import secrets
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from octavo.errors import OctavoError
from octavo.platform import Rank
from octavo.platform.certificate import users_folder
from octavo_conformance import mutants as planted
from octavo_conformance import report, suite_version
from octavo_conformance.judge.tol import TIERS
from octavo_conformance.proof import bundle as bundles
from octavo_conformance.proof import issue
from octavo_conformance.proof.certificate import Result, conclude, with_lower
from octavo_conformance.report.document import COMMAND
from octavo_conformance.suite import calibrations, lock
from octavo_conformance.suite.check import LEVELS, PROFILES, Check
from octavo_conformance.suite.record import Judged, Record, judge
from octavo_conformance.suite.registry import catalogue
from octavo_conformance.suite.runner import Run, Selection, run, run_check
from octavo_conformance.suite.status import Status
from octavo_conformance.worker.host import CandidateDied, CandidateHung, CandidateRaised, Worker

FAILED, NOT_CERTIFYING, UNUSABLE = 1, 3, 4
_MOST_GAPS = 20
"""Reasons that are shown of why a run does not certify; all are in the report."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Prove that a platform is right, and check the proofs of others.",
    epilog="Exit codes: 0 certifiable, or sound; 1 a check failed, or a claim is wrong; 2 the suite is at fault; "
    "3 clean, but not certifying; 4 the platform cannot be had, or the question makes no sense.",
)

Platform = Annotated[str, typer.Option(help="Which platform; see: octavo platforms.")]
Tier = Annotated[str, typer.Option(help="Accuracy tier: A0, A1 or A2, the strictest.")]
Seed = Annotated[str, typer.Option(help="What the inputs are made from.")]
Threads = Annotated[int | None, typer.Option(help="Host cores that the device may keep busy.")]
BundlePath = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A .tgz that run or certify wrote.")]
Out = Annotated[Path, typer.Option(help="Folder for the bundle and the reports.")]
Profile_ = Annotated[str, typer.Option("--profile", help="quick (minutes), standard or full.")]
Levels = Annotated[str, typer.Option(metavar="L0,L1,...", help="Levels to run; all if left out.")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; ``octavo conformance`` passes on what follows it."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="octavo conformance")
    except OctavoError as error:
        sys.stderr.write(f"octavo: {error}\n")
        raise SystemExit(UNUSABLE) from None


@app.command("list")
def list_checks(
    level: Annotated[str | None, typer.Option(help=f"One level or module: {', '.join(LEVELS)}.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--md", help="As the conformance document, in Markdown.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it there.")] = None,
) -> None:
    """Every check with what it demands."""
    if level is not None:
        _one_of(level, LEVELS, "--level")
    checks = {name: c for name, c in catalogue().items() if level in (None, c.level)}
    if as_json:
        text = json.dumps([_facts(c) for c in checks.values()], indent=1) + "\n"
    elif markdown:
        text = report.document(checks, planted.catalogue())
    else:
        text = "\n".join([*report.listing(list(checks.values()), _width()), ""]).lstrip("\n")
    if out is None:
        typer.echo(text, nl=False)
    else:
        _write(out, text)


def _facts(check: Check) -> dict[str, Any]:
    return {
        "id": check.id, "level": check.level, "module": check.module, "since": check.since, "grade": check.grade,
        "requires": check.requires, "rules": check.rules, "kills": check.kills, "profile": check.profile,
        "spec": check.spec,
    }  # fmt: skip


@app.command("run")
def run_checks(
    platform: Platform,
    profile: Profile_ = "quick",
    levels: Levels = "",
    only: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="CHECK", help="A check, or a family: norm. with its dot; may repeat."),
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Seconds; what does not fit is NOT_RUN.")] = None,
    tier: Tier = "A1",
    seed: Seed = "0",
    threads: Threads = None,
    out: Out = Path("conformance"),
    baseline: Annotated[Path | None, typer.Option(metavar="BUNDLE", help="A bundle to compare with.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that one request to the device may take.")] = 300.0,
) -> None:
    """Run the checks against a platform and write a bundle and reports."""
    known = tuple(_known(name) for name in only or ())
    wanted = Selection(_one_of(profile, PROFILES, "--profile"), _levels(levels), known, budget)
    tier = _one_of(tier, tuple(TIERS), "--tier")
    before = None if baseline is None else bundles.verify(baseline)  # before the run, which takes long
    _, result, path = _run(platform, wanted, tier, seed, threads, out, timeout)
    if before is not None:
        typer.echo(report.differences(before[:2], (bundles.read(path), result)))
    raise typer.Exit(result.exit_code)


@app.command()
def certify(
    platform: Platform,
    profile: Profile_ = "full",
    levels: Levels = "",
    tier: Tier = "A1",
    threads: Threads = None,
    challenge: Annotated[str | None, typer.Option(help="A verifier's seed; a random one if left out.")] = None,
    out: Out = Path("conformance"),
    ship: Annotated[
        bool, typer.Option("--ship", help="Put the certificate into the plugin's package, for its next release.")
    ] = False,
) -> None:
    """Run all that a claim needs and, if it holds, issue the certificate that octavo platforms shows.

    The certificate names its levels, tier and profile, of which nothing can be left out; levels bring those that they
    build on.
    """
    seed = challenge or secrets.token_hex(8)
    wanted = Selection(_one_of(profile, PROFILES, "--profile"), with_lower(_levels(levels)), claim=True)
    done, result, path = _run(platform, wanted, _one_of(tier, tuple(TIERS), "--tier"), seed, threads, out, 300.0)
    read, _, found = bundles.verify(path)  # only what anybody else would find sound
    why_not = [result.why_not] if result.exit_code else [] if result.levels else ["no level is proven"]
    if why_not or found:
        typer.echo(f"no certificate is issued: {'; '.join([*why_not, *found])}")
        raise typer.Exit(result.exit_code or NOT_CERTIFYING)
    folder = users_folder(read.platform)
    if ship and done.description["package"]:
        folder = Path(done.description["package"])
    elif ship:
        typer.echo("the plugin is a single module, which can carry no certificate: make it a package to ship one")
    typer.echo(f"certificate: {issue.issue(read, path, result, folder)}")


def _run(
    platform: str, wanted: Selection, tier: str, seed: str, threads: int | None, out: Path, timeout: float
) -> tuple[Run, Result, Path]:
    """Run, write bundle and reports, and tell how it ended. Leaves with a sentence where the platform cannot be had."""
    started = time.monotonic()
    _make(out)

    def told(record: Record, check: Check) -> None:
        if record.mode != "not run":
            _tell(judge(record, check, tier))

    try:
        done = run(platform, wanted, seed=seed, tier=tier, threads=threads, timeout=timeout, told=told)
    except (CandidateRaised, CandidateDied, CandidateHung) as error:
        typer.echo(f"octavo: platform {platform} cannot be had: {_why(error)}", err=True)
        raise typer.Exit(UNUSABLE) from None
    result = _concluded(done)
    path = bundles.write(done, result, out)
    _write_reports(bundles.read(path), result, out, ("md", "junit"))
    typer.echo(f"\n{result.line}: {result.verdict} in {time.monotonic() - started:.0f} s")
    _tell_gaps(result)
    typer.echo(f"bundle: {path}, with reports beside it")
    return done, result, path


def _tell_gaps(result: Result) -> None:
    for gap in result.gaps[:_MOST_GAPS]:
        typer.echo(f"does not certify: {gap}")
    if len(result.gaps) > _MOST_GAPS:
        typer.echo(f"does not certify: and {len(result.gaps) - _MOST_GAPS} reasons more, in the report")


def _concluded(done: Run) -> Result:
    checks = catalogue()
    return conclude(
        done.records, checks, tier=done.tier, profile=done.selection.profile, whole=done.selection.whole,
        levels=done.selection.claimed, differences=lock.differences(lock.installed(), checks), mutant=done.mutant,
    )  # fmt: skip


def _tell(judged: Judged) -> None:
    """A line for each check; for a bad one also why."""
    record = judged.record
    count = "1 case" if len(judged.cases) == 1 else f"{len(judged.cases)} cases"
    typer.echo(f"{judged.status.name:<11}{record.id}  ({count}, {record.seconds:.1f} s)")
    for reason in judged.reasons:
        typer.echo("           " + reason.rstrip().replace("\n", "\n           "))
    for case in judged.cases:
        if case.reasons:
            typer.echo(f"           {case.case}: {'; '.join(case.reasons)}")


@app.command()
def explain(check_id: Annotated[str, typer.Argument(metavar="CHECK")]) -> None:
    """Tell what a check demands. By which rules it is judged, and which faults it catches."""
    check = catalogue()[_known(check_id, family=False)]
    for line in report.explanation(check, planted.catalogue(), _width()):
        typer.echo(line)


@app.command()
def repro(
    bundle: BundlePath,
    which: Annotated[str, typer.Argument(metavar="CHECK[:CASE]", help="What to run; run told the cases' names.")],
    platform: Annotated[str | None, typer.Option(help="Another platform than the bundle's.")] = None,
) -> None:
    """Run one check of a bundle again on this machine, with the same inputs, and show its measurements."""
    read = bundles.read(bundle)
    check_id, _, case = which.partition(":")
    check = catalogue()[_known(check_id, family=False)]
    name = platform or read.platform
    try:
        with Worker(name, mutant=str(read.statement["mutant"])) as worker:
            record = run_check(check, lambda: worker, str(read.statement["seed"]), Rank())
    except (CandidateRaised, CandidateDied, CandidateHung) as error:
        raise OctavoError(f"platform {name} cannot be had: {_why(error)}") from None
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
    _tell_gaps(result)
    if not found:
        typer.echo("sound: its measurements say what it claims")
    raise typer.Exit(FAILED if found or (strict and result.exit_code) else 0)


@app.command("report")
def make_report(
    bundle: BundlePath,
    out: Out = Path("conformance"),
    markdown: Annotated[bool, typer.Option("--md", help="Markdown.")] = False,
    junit: Annotated[bool, typer.Option("--junit", help="JUnit XML.")] = False,
) -> None:
    """Write reports of a bundle; all of them if none is named."""
    kinds = [k for k, wanted in (("md", markdown), ("junit", junit)) if wanted]
    read, result, found = bundles.verify(bundle)
    for path in _write_reports(read, result, out, kinds or ("md", "junit")):
        typer.echo(str(path))
    for text in found:
        typer.echo(f"warning: the bundle is not what it claims: {text}", err=True)


def _write_reports(read: bundles.Bundle, result: Result, out: Path, kinds: Sequence[str]) -> list[Path]:
    checks = catalogue()
    made = {
        "md": ("report.md", report.markdown(read, result, checks)),
        "junit": ("junit.xml", report.junit(result, checks, read.profile)),
    }
    paths = []
    for kind in kinds:
        name, text = made[kind]
        _write(out / name, text)
        paths.append(out / name)
    return paths


def _write(path: Path, text: str) -> None:
    _make(path.parent)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OctavoError(f"{path} cannot be written: {error.strerror} (--out)") from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OctavoError(f"the folder {folder} cannot be made: {error.strerror} (--out)") from error


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A bundle.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Another one: of later, or of another platform.")],
) -> None:
    """What changed from one bundle to another: claim, environment, declarations, checks."""
    typer.echo(report.differences(*((b, r) for b, r, _ in (bundles.verify(old), bundles.verify(new)))), nl=False)


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
    """How the named checks end, with a fault planted."""
    checks = catalogue()
    known = tuple(name for name in names if name in checks)
    if not known:
        return {}
    done = run(platform, Selection("full", only=known), tier=tier, mutant=mutant, threads=threads)
    return {r.id: judge(r, checks[r.id], tier).status for r in done.records if r.mode != "not run"}


def _tell_statuses(verdict: str, name: str, ended: Mapping[str, Status]) -> None:
    told = ", ".join(f"{check} {status.name}" for check, status in ended.items())
    typer.echo(f"{verdict:<9}{name}: {told or 'the suite has none of its checks'}")


@app.command()
def calibrate(
    write: Annotated[bool, typer.Option("--write", help="Replace the frozen calibration.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="One seed and the smaller shapes: seconds.")] = False,
) -> None:
    """Measure what right kernels lose, and that wrong ones lose more (for maintainers of the suite).

    Every kernel judged by error budget is computed in eight legal orders of summation, and in ways that are wrong. The
    tiers must let all of the first through with a margin and none of the second near. No platform is needed.
    """
    if write and quick:
        raise OctavoError("--quick measures too little to be written; leave it out")
    measured = calibrations.measure(quick=quick, told=lambda line: typer.echo(line))
    problems = calibrations.problems(measured)
    if write and not problems:
        path = Path(calibrations.__file__).parent / calibrations.FILE
        path.write_text(calibrations.text(measured), encoding="utf-8")
        typer.echo(f"written: {path}")
    elif not write:
        problems += calibrations.differences(measured, calibrations.installed(), whole=not quick)
    for problem in problems:
        typer.echo(f"wrong: {problem}")
    raise typer.Exit(FAILED if problems else 0)


@app.command("lock")
def write_lock(write: Annotated[bool, typer.Option("--write", help="Replace the list.")] = False) -> None:
    """Compare the checks with the frozen list. For maintainers of the suite."""
    checks = catalogue()
    if write:
        path = Path(lock.__file__).parent / "checks.lock"
        path.write_text(lock.text(checks.values()), encoding="utf-8")
        typer.echo(f"{path}: {len(checks)} checks, suite {suite_version()}")
        typer.echo(f"in a clone, also: {COMMAND}")
        return
    found = lock.differences(lock.installed(), checks)
    for text in found:
        typer.echo(text)
    raise typer.Exit(FAILED if found else 0)


def _one_of(value: str, known: Sequence[Any], flag: str) -> Any:
    if value not in known:
        raise OctavoError(f"{flag} {value} is not known; choose of {', '.join(known)}")
    return value


def _levels(text: str) -> tuple[str, ...]:
    return tuple(_one_of(part.strip(), LEVELS, "--levels") for part in text.split(",") if part.strip())


def _known(name: str, *, family: bool = True) -> str:
    """A check's id, or the beginning of some."""
    checks = catalogue()
    if name in checks or (family and name.endswith(".") and any(c.startswith(name) for c in checks)):
        return name
    inside = [c for c in checks if c.startswith(f"{name.rstrip('.')}.")]
    near = inside or difflib.get_close_matches(name, checks, n=3)
    meant = f"; did you mean {' or '.join(near[:3])}?" if near else ";"
    raise OctavoError(f"there is no check {name}{meant} see: octavo conformance list")


def _width() -> int:
    """Columns for text: the terminal's, but no line longer than can be read."""
    return min(shutil.get_terminal_size().columns, 100)


def _why(error: CandidateRaised | CandidateDied | CandidateHung) -> str:
    """Why a platform cannot be had, in a line: what core says of it as it is, anything else with where it came from."""
    told = error.message if isinstance(error, CandidateRaised) and "OctavoError" in error.types else str(error)
    return told.partition("\n")[0]
