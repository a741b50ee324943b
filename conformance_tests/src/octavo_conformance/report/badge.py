"""An SVG badge with the levels of a certificate."""

from __future__ import annotations

from html import escape

from octavo_conformance.certificate import Result
from octavo_conformance.status import Status


def badge(result: Result) -> str:
    """Green where everything that ran is good and it certifies, grey where it does not certify, red where it failed."""
    colour = "#b33" if result.status >= Status.FAIL else "#777" if result.gaps else "#2a7"
    left, right = "octavo conformance", " ".join(result.levels) or result.verdict
    widths = [7 * len(text) + 12 for text in (left, right)]
    total = sum(widths)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="20" role="img">'
        f"<title>{escape(result.line)}</title>"
        f'<rect width="{widths[0]}" height="20" fill="#444"/>'
        f'<rect x="{widths[0]}" width="{widths[1]}" height="20" fill="{colour}"/>'
        f'<g fill="#fff" font-family="sans-serif" font-size="12">'
        f'<text x="6" y="14">{escape(left)}</text><text x="{widths[0] + 6}" y="14">{escape(right)}</text></g></svg>\n'
    )
