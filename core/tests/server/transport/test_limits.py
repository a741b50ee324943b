"""The limits as a policy: each can be set, none can be set to nonsense, the page about them tells the truth."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from octavo import sampling
from octavo.errors import ConfigError
from octavo.server.transport.limits import Limits, table

DOCS = Path(__file__).parents[4] / "docs" / "limits.md"


def test_settings_change_the_defaults() -> None:
    limits = Limits.parse(
        ["n=16", "body_bytes=4MiB", "header_bytes=2KiB", "template_memory=1GiB", "request_seconds=1.5"]
    )
    assert (limits.n, limits.body_bytes, limits.header_bytes) == (16, 4 * 2**20, 2048)
    assert (limits.template_memory, limits.request_seconds) == (2**30, 1.5)
    assert limits.prompts == Limits().prompts


def test_without_settings_all_is_as_documented() -> None:
    assert Limits.parse([]) == Limits()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("m=3", r"no limit 'm'; there are: connections, .*keep_alive_seconds \(--limit NAME=VALUE\)"),
        ("body_byte=3", "did you mean body_bytes"),
        ("n", "the limit n needs a value: --limit n=128"),
        ("body_bytes", "--limit body_bytes=16MiB"),
        ("n=many", "n is a whole number, or one of KiB, MiB, GiB, not 'many'"),
        ("n=1.5", "whole number"),
        ("n=", "whole number"),
        ("body_seconds=soon", "body_seconds is a number of seconds, not 'soon'"),
        ("n=0", "n must be at least 1 and at most 1024, not 0"),
        (f"n={sampling.MAX_N + 1}", "at most 1024, not 1025"),
        ("logprobs=65", "at most 64"),
        ("body_seconds=0", "at least 0.1, not 0"),
        ("body_seconds=nan", "not nan"),
        ("body_seconds=inf", "not inf"),
        ("request_seconds=-1", r"at least 0 \(0: no limit\), not -1"),
        ("json_depth=501", "at most 500"),
    ],
)
def test_what_cannot_work_is_refused_by_name(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Limits.parse([setting])


def test_zero_means_none_where_it_is_said_so() -> None:
    off = [one.name for one in fields(Limits) if one.metadata["off"]]
    assert set(off) == {"queued_requests", "queued_tokens", "request_seconds", "keep_alive_seconds"}
    limits = Limits.parse([f"{name}=0" for name in off])
    assert [getattr(limits, name) for name in off] == [0] * len(off)


def test_the_page_about_limits_has_their_table() -> None:
    """Write it with: python -c 'from octavo.server.transport.limits import table; print(*table(), sep="\\n")'."""
    assert "\n".join(table()) in DOCS.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/files/",
        "/v1/files/file-1",
        "/v1/files/file-1/content",
        "/v1/filesystem",
        "/v1/files2",
        "/V1/FILES",
        "//v1/files",
    ],
)
def test_only_an_upload_may_be_as_large_as_a_file(path: str) -> None:
    limits = Limits(body_bytes=1000, file_bytes=5000)
    assert limits.body_bytes_of(path) == 1000
    assert limits.body_bytes_of("/v1/files") > 5000
