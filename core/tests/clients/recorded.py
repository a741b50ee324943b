"""What the recorded scripts share: a server to run against, and how a script ends.

Not a test: these scripts need clients that do not belong in the environment of the tests. Each says at its top how to
install its client; `OCTAVO` names the command of an environment that has Octavo and a platform.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def arguments(description: str | None, model: str) -> argparse.Namespace:
    """The arguments that every script takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("model", help=model)
    parser.add_argument("--octavo", default=os.environ.get("OCTAVO", "octavo"), help="The octavo command.")
    parser.add_argument("--platform", help="Which platform serves.")
    return parser.parse_args()


@contextmanager
def serving(octavo: str, model: str, *options: str, platform: str | None = None) -> Iterator[str]:
    """The base URL of a server of this model, under the name ``served``; it ends with the block."""
    command = [octavo, "serve", model, "--port", "0", "--served-model-name", "served", *options]
    if platform:
        command += ["--platform", platform]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        url = next((line.split()[-1] for line in process.stdout if "ready at" in line), None)
        if url is None:
            raise SystemExit(f"the server did not start: {' '.join(command)}")
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def say(line: str) -> None:
    """A line of the record."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def check(what: str, right: bool) -> None:
    """Say what was checked; leave with code 1 where it is wrong."""
    say(f"{'ok ' if right else 'NO '} {what}")
    if not right:
        raise SystemExit(1)


def check_refused(kind: type[Exception], ask: Callable[[], object]) -> None:
    """Check that asking raises this kind of exception."""
    try:
        ask()
    except kind as error:
        said = " ".join(str(error).split())
        check(f"{type(error).__name__}: {said[:110]}", True)
    else:
        check(f"{kind.__name__} was not raised", False)
