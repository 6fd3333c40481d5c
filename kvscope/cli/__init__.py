"""The `kvscope` command: the composition root, which alone knows both engine and exporter.

The engine is imported inside functions: only `engine serve` and `demo` need torch.
"""

from kvscope.cli.app import main

__all__ = ["main"]
