"""A virtual environment that has all that this one has, and keeps to itself what is installed into it."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from pathlib import Path


class Throwaway:
    """Commands run in ``folder``, as in a shell with the environment active: ``python``, ``pip``, ``octavo``.

    Nothing is fetched: pip finds build tools and dependencies in this environment. What is the user's own (caches,
    certificates) lies in the folder too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        root = folder / ".venv"
        venv.create(root, with_pip=False, symlinks=True)
        self._bin = root / "bin"
        installed = Path(sysconfig.get_path("purelib", vars={"base": str(root), "platbase": str(root)}))
        # addsitedir, so that what is installed here in editable form is found as well
        base = sysconfig.get_path("purelib")
        (installed / "outer.pth").write_text(f"import site; site.addsitedir({base!r})\n", encoding="utf-8")
        for command, module in (("octavo", "octavo.cli.main"), ("pip", "pip")):
            script = self._bin / command
            script.write_text(f'#!/bin/sh\nexec "{self._bin}/python" -m {module} "$@"\n', encoding="utf-8")
            script.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that commands see."""
        own = {
            "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "XDG_DATA_HOME": str(self.folder / "data"),
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # sic: it is the value of --build-isolation
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "COLUMNS": "100",
        }
        return {**os.environ, **own}

    def run(self, *command: str, status: int = 0) -> str:
        """What a command printed; fails the test where it ends with another status."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == status, f"{command} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    @property
    def python(self) -> str:
        """The environment's interpreter."""
        return str(self._bin / "python")
