r"""What ``\d``, ``\w`` and ``\s`` mean in the ``regex`` of structured output: ASCII, unless it begins with ``(?u)``.

A model that is held to ``\d{4}`` is to write a year, not Arabic-Indic digits that the caller's own check refuses. The
patterns of JSON Schema (ECMA-262) and Go's regular expressions have ASCII there; Rust's syntax, in which these are
compiled, has all of Unicode. ``\p{Nd}`` and its kin still name classes of Unicode.
"""

from __future__ import annotations

import re

from octavo.text.grammar.schema import BadConstraint

_UNICODE = "(?u)"
_SPACE = r" \t\n\r\f\v"
_CLASSES = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "s": f"[{_SPACE}]",
    "S": f"[^{_SPACE}]",
}
"""Each stands within other brackets as well: Rust's syntax has classes in classes."""
_PIECE = re.compile(r"\\(?:[pPxuU](?:\{[^}]*\}|.)|.)|\[\^?\]?|.", re.DOTALL)


def ascii_classes(regex: str) -> str:
    """The expression with these classes written out. Raises BadConstraint for a range that would end in one of them."""
    if regex.startswith(_UNICODE):
        return regex[len(_UNICODE) :]
    made: list[str] = []
    depth, before = 0, ""
    for found in _PIECE.finditer(regex):
        piece = found[0]
        if piece[0] == "\\" and piece[1:] in _CLASSES:
            if depth and before == "-" and made[-2:-1] not in (["["], ["[^"]):
                raise BadConstraint(
                    f"the regex {regex!r:.80} has a range up to {piece}; escape the -, or put it first in [ ]"
                )
            piece = _CLASSES[piece[1:]]
        elif piece[0] == "[":
            depth += 1
        elif piece == "]" and depth:
            depth -= 1
        made.append(piece)
        before = piece
    return "".join(made)
