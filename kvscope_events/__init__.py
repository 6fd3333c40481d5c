"""The contract between an inference engine and its observers: events, bus, wire.

All of kvscope stands on it, and it is the only part that runs inside a foreign server. It needs
Python 3.10 or later, and msgspec. Importing the package imports none of its modules.
"""

__version__ = "0.1.0"
"""The version of both distributions; `make release-check` finds files that state another."""
