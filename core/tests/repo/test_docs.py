"""The documentation is true: its links lead somewhere, and its code runs as written.

A fenced block takes part when its info string says how:

    ```python runnable    run in the folder of the sample checkpoints
    ```python platform    installed as a plugin named acme, then generates on that platform
    ```python server      run while `octavo serve` has the sample model at the address the block uses
    ```bash server        likewise, by bash

For the `server` kind the test serves on a free port and puts its number in place of 8000.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

SAMPLE_NAME = "SmolLM2-135M-Instruct"  # what `make serve` calls it

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
FRAGMENT = re.compile(r"[a-z0-9-]+\.(added|changed|fixed|removed)\.md")


class Block(NamedTuple):
    page: Path
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(info: str) -> list[Block]:
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match["code"])
        for page in PAGES
        for text in [page.read_text(encoding="utf-8")]
        for match in FENCE.finditer(text)
        if match["info"].strip() == info
    ]


def execute(*command: str, cwd: Path | None = None) -> str:
    """What a block printed; fails the test with what it said if it failed or was silent."""
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example should show something"
    return done.stdout


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings make, as GitHub derives them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    dead = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            dead.append(link)
    assert not dead


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    pages = [page.name for page in folder.glob("[0-9]*.md")]
    assert pages
    assert [name for name in pages if f"({name})" not in index] == []


def test_every_page_is_reached_from_the_first_ones() -> None:
    docs = set((ROOT / "docs").glob("*.md"))
    seen: set[Path] = set()
    ahead = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    while ahead:
        page = ahead.pop()
        if page not in seen and page.suffix == ".md" and page.exists():
            seen.add(page)
            links = LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
            ahead += [
                (page.parent / link.partition("#")[0]).resolve() for link in links if not re.match(r"[a-z]+:", link)
            ]
    assert docs and not docs - seen


def test_changelog_fragments_are_named_for_their_kind() -> None:
    names = {page.name for page in (ROOT / "docs" / "changelog.d").iterdir()} - {"README.md"}
    assert [name for name in names if not FRAGMENT.fullmatch(name)] == []


@pytest.mark.real_model
@pytest.mark.parametrize("block", blocks("python runnable"), ids=str)
def test_a_python_block_runs(block: Block, smollm2_gguf: Path) -> None:
    execute(sys.executable, "-c", block.code, cwd=smollm2_gguf.parent)


USE_ACME = """
from octavo import LLM, SamplingParams
llm = LLM(model="SmolLM2-135M-Instruct.Q4_1.gguf", platform="acme", max_model_len=64, max_num_seqs=1)
[output] = llm.generate(["The capital of France is"], SamplingParams(temperature=0.0, max_tokens=2), use_tqdm=False)
print(output.outputs[0].text)
"""


@pytest.mark.real_model
@pytest.mark.parametrize("block", blocks("python platform"), ids=str)
def test_the_skeleton_of_a_platform_generates(block: Block, smollm2_gguf: Path, tmp_path: Path) -> None:
    package = tmp_path / "octavo_acme"
    package.mkdir()
    (package / "plugin.py").write_text(block.code, encoding="utf-8")
    installed = tmp_path / "octavo_acme-0.1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: octavo-acme\nVersion: 0.1.0\n", encoding="utf-8")
    (installed / "entry_points.txt").write_text("[octavo.platforms]\nacme = octavo_acme.plugin\n", encoding="utf-8")

    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{USE_ACME}"

    assert "Paris" in execute(sys.executable, "-c", code, cwd=smollm2_gguf.parent)


@pytest.fixture(scope="module")
def server(smollm2_gguf: Path) -> Iterator[int]:
    """`octavo serve` with the sample model; the port it listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    octavo = Path(sys.executable).parent / "octavo"
    command = [str(octavo), "serve", str(smollm2_gguf), "--port", str(port), "--served-model-name", SAMPLE_NAME]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        _wait_until_healthy(process, f"http://127.0.0.1:{port}/health")
        yield port
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise


def _wait_until_healthy(process: subprocess.Popen[bytes], url: str) -> None:
    for _ in range(600):
        if process.poll() is not None:
            output, _ = process.communicate()
            pytest.fail(f"octavo serve ended with status {process.returncode}:\n{output.decode(errors='replace')}")
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    pytest.fail("octavo serve did not become healthy")


@pytest.mark.real_model
@pytest.mark.parametrize("block", blocks("python server"), ids=str)
def test_a_python_block_talks_to_the_server(block: Block, server: int) -> None:
    execute(sys.executable, "-c", block.code.replace("8000", str(server)))


@pytest.mark.real_model
@pytest.mark.parametrize("block", blocks("bash server"), ids=str)
def test_a_bash_block_talks_to_the_server(block: Block, server: int) -> None:
    answer = json.loads(execute("bash", "-euc", block.code.replace("8000", str(server))))
    assert answer["choices"][0]["message"]["content"]
