"""The characters that byte-level tokenizers write bytes as, so that a vocabulary is plain text.

Source: GPT-2's encoder.py, bytes_to_unicode. Printable bytes stand for themselves, the other 68
for U+0100 and on.
"""

from collections.abc import Iterator


def _characters() -> Iterator[str]:
    substitutes = (chr(code) for code in range(0x100, 0x200))
    for byte in range(256):
        printable = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE
        yield chr(byte) if printable else next(substitutes)


BYTE_TO_CHAR: tuple[str, ...] = tuple(_characters())
CHAR_TO_BYTE: dict[str, int] = {char: byte for byte, char in enumerate(BYTE_TO_CHAR)}
