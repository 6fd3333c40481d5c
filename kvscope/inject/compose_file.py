"""Observes the servers among the services of a Compose file, and takes everything off again."""

from kvscope.inject.edit import Editor
from kvscope.inject.kubernetes import Wish
from kvscope.inject.report import Report
from kvscope.inject.tree import Node


def inject(root: Node, edit: Editor, wish: Wish, report: Report) -> None:
    """Observe each service that runs a server."""


def remove(root: Node, edit: Editor, report: Report) -> None:
    """Take observer and sidecar off each service."""
