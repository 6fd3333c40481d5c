"""What decoding the JSON of an unknown server may raise."""

import msgspec

JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Unexpected types, text that is not UTF-8, and unbounded nesting."""
