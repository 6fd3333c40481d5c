"""The `kvscope` command: the composition root, which alone knows both engine and exporter.

The engine is imported inside functions: every command except `serve` and `demo` runs without torch.
"""

from kvscope.cli.app import main

__all__ = ["main"]
