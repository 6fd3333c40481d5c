"""Units of OpenTelemetry, which are UCUM's, for the catalogue's."""

from exporter.catalogue import Metric

_UNITS = {
    "": "",
    "seconds": "s",
    "bytes": "By",
    "ratio": "1",
    "celsius": "Cel",
    "watts": "W",
    "joules": "J",
    "hertz": "Hz",
    "batches": "{batch}",
    "losses": "{loss}",
    "processes": "{process}",
    "retries": "{retry}",
}
"""Any other unit counts things, and is written in braces and in the singular."""


def unit_of(row: Metric) -> str:
    """The unit of a row in OpenTelemetry."""
    if row.otel_name == "hw.status":
        return "1"
    known = _UNITS.get(row.unit)
    return f"{{{row.unit.removesuffix('s')}}}" if known is None else known
