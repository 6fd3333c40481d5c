"""What decoding the JSON of an unknown server may raise."""

import msgspec

JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Not what was expected, text that is no UTF-8, and nesting without end."""
