"""Labels that identify what a series belongs to; every rule and panel builds its clauses from them.

A label that no series has costs nothing in `by` and `on`. So panels always name a place, and rules
that of their scope.
"""

PLACE = ("cluster", "namespace", "pod")
"""The place of a server, as far as the scrape job provides it."""
MODEL = "model_name"
SERVER = ("job", "instance")
"""A scraped page. `instance` alone is not enough: two jobs may scrape one address."""
SERVICE = ("cluster", "namespace", MODEL)
"""A model in one place, which is what has objectives."""
ENGINE = (*SERVER, MODEL, "engine")
"""An engine of a server; `engine` is 0 in every server that has only one."""
HAS_ENGINE = 'source!="remote"'
"""Matcher of streams with their engine on the same page, not of workers alone."""
GPU = ("gpu", "uuid")
"""A card of a server."""


def clause(*labels: str) -> str:
    """The labels in the form of PromQL's `by` and `on`."""
    return ", ".join(labels)
