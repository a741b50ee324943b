"""What the tests of killable workers let them do: the first word of a payload says it."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

calls = 0


def play(payload: bytes) -> bytes:
    global calls
    calls += 1
    verb, _, rest = payload.partition(b" ")
    match verb:
        case b"echo":
            return rest
        case b"modules":
            return " ".join(sys.modules).encode()
        case b"pid":
            return str(os.getpid()).encode()
        case b"calls":
            return str(calls).encode()
        case b"sleep":
            time.sleep(float(rest))
            return b"slept"
        case b"touch":  # says that it began, and goes on
            Path(os.fsdecode(rest)).touch()
            time.sleep(60)
            return b"slept"
        case b"spin":  # inside one call of C code, where no Python signal handler runs
            re.match(r"(a|a)*b", "a" * 40)
            return b"matched"
        case b"grow":
            return str(len(bytearray(int(rest)))).encode()
        case b"fail":
            raise ValueError(rest.decode())
        case b"exit":
            os._exit(int(rest))
        case b"print":
            os.write(1, rest)
            return b"printed"
    raise AssertionError(payload)
