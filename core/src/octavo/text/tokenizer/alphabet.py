"""The alphabet in which byte-level BPE spells bytes: 256 printable characters, one for each byte.

Source: Radford et al. 2019 (GPT-2), section 2.2. A byte that is a visible character of Latin-1 stands for itself; the
68 others (controls, space, soft hyphen) take the characters from U+0100 on, in order. So space is U+0120, "Ġ".
"""

from __future__ import annotations

_VISIBLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}


def _alphabet() -> dict[int, str]:
    replacements = iter(range(0x100, 0x200))
    return {byte: chr(byte if byte in _VISIBLE else next(replacements)) for byte in range(256)}


BYTE_TO_CHARACTER = _alphabet()
CHARACTER_TO_BYTE = {character: byte for byte, character in BYTE_TO_CHARACTER.items()}


def spell(data: bytes) -> str:
    """Bytes in the alphabet, one character each."""
    return "".join(map(BYTE_TO_CHARACTER.__getitem__, data))
