"""What the libraries of the export log: `Faults` says it, once a minute and without secrets."""

import logging


def quiet_libraries() -> None:
    """For the whole process; called before the first export."""
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
    logging.getLogger("opentelemetry.util").setLevel(logging.CRITICAL)  # it logs headers' values
    logging.getLogger("urllib3").setLevel(logging.ERROR)
