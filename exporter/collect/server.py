"""The family about the watched server as a whole."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from exporter.catalogue.server import SERVER_STATES, ServerState
from exporter.collect.families import Families


def collect_server(families: Families, state: ServerState | None) -> Iterator[Family]:
    """Nothing where no server is watched."""
    if state is not None:
        yield families.table(
            "kvscope_server_state", {(known,): known == state for known in SERVER_STATES}
        )
