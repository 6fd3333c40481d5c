"""Memory: is the hardware well?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import among, outstanding
from dashboards.kit.frame import Row
from dashboards.kit.links import RUNBOOK_OF_XIDS
from dashboards.kit.panels import COUNT, PER_SECOND, SECONDS, Q, graph, numbers, timeline
from dashboards.kit.queries import (
    BY_GPU,
    GPU,
    GPU_LEGEND,
    SERVER,
    dcgm,
    gpu,
    of_chosen,
    or_zero,
    rate,
    series,
    total,
    worst,
)
from dashboards.kit.tables import Column, rows

_NO_GPU = "No card is read here. On Kubernetes, add components/nvml to the pod."
_BY_POD = "namespace, pod, gpu"


def _gpu(name: str, **labels: str) -> str:
    return gpu(f"kvscope_gpu_{name}", **labels)


def _gpu_rate(name: str) -> str:
    return of_chosen(rate(f"kvscope_gpu_{name}", GPU))


def _of_server(name: str) -> str:
    return of_chosen(series(f"kvscope_gpu_{name}", SERVER))


def _each_card(expr: str) -> str:
    """Counts a card once, however many servers of the machine see it."""
    return worst(expr, "uuid")


_LOST = total(_each_card(f"1 - {_gpu('up')}"))
_PENDING, _FAILED = (
    or_zero(total(_each_card(_gpu(f"row_remap_{state}"))), _gpu("up"))
    for state in ("pending", "failed")
)


def faults() -> str:
    """Cards and rows of memory that are broken, in one number."""
    return f"({_LOST}) + ({_PENDING}) + ({_FAILED})"


def xids() -> str:
    """Events that NVML has reported, or cards whose last one DCGM reports."""
    events = or_zero(total(_each_card(_gpu("xid_events_total"))), _gpu("up"))
    return f"({events}) or sum({dcgm('xid:last')} > bool 0)"


def _cards(name: str, *, lowest: bool = False) -> tuple[Q, Q]:
    return outstanding(worst(_gpu(name), BY_GPU), GPU_LEGEND, by=BY_GPU, lowest=lowest)


def _memories(name: str, *, lowest: bool = False) -> Q:
    return among(
        *(worst(_gpu(name), BY_GPU), f"memory, {GPU_LEGEND}"), by=BY_GPU, lowest=lowest, most=3
    )


_BY_REASON = "gpu, instance, reason"


def _held_back() -> str:
    """2 for the power limit, which is not a fault."""
    active = _gpu("clocks_event_active")
    normal = _gpu("clocks_event_active", reason="sw_power_cap")
    return f"2 * {worst(normal, _BY_REASON)} or {worst(active, _BY_REASON)}"


def row() -> Row:
    return Row(
        600,
        "Is the hardware well?",
        [
            numbers(
                601,
                "GPU and driver faults",
                "GPUs that do not answer (lost), memory rows that wait for a reset or could not "
                "be remapped, servers whose driver does not answer. Not 0: drain the server, then "
                "do what 'The device asks for' shows.",
                COUNT,
                Q(_LOST, "lost"),
                Q(_PENDING, "remap pending"),
                Q(_FAILED, "remap failed"),
                Q(f"sum(1 - {_of_server('nvml_up')})", "driver silent"),
                steps=limits.NONE_IS_GOOD,
                span=6,
                height=8,
                when_absent="no GPU",
            ),
            timeline(
                603,
                "Clocks are held back by",
                "hw_* and sw_thermal: too hot, or the power supply limits the card; tell the "
                "operator of the machine. sw_power_cap: at its power limit, normal under full "
                "load, hence grey.",
                among(_held_back(), "{{reason}}, GPU {{gpu}}", by=_BY_REASON, rank="avg"),
                meanings=limits.CLOCKS_HELD_BACK,
                span=6,
                height=8,
                when_absent=_NO_GPU,
            ),
            graph(
                604,
                "ECC errors, failed calls",
                "Uncorrected ECC errors: the card loses data; drain it, and replace it if they "
                "come again. Failed NVML calls: the driver is in trouble, or permissions are "
                "missing; `kvscope doctor` shows which.",
                PER_SECOND,
                Q(
                    total(worst(_gpu_rate("ecc_errors_total"), "uuid, type"), "type"),
                    "ECC {{type}}",
                ),
                Q(
                    total(of_chosen(rate("kvscope_gpu_nvml_errors_total", SERVER)), "call"),
                    "{{call}}",
                ),
                span=6,
                height=8,
            ),
            graph(
                605,
                "Temperature",
                "Temperatures of the GPU and of its memory. Above the line clocks go down and "
                "every step gets slower: check cooling and neighbours.",
                "celsius",
                *_cards("temperature_celsius"),
                _memories("memory_temperature_celsius"),
                among(
                    worst(dcgm("temperature_celsius:max"), _BY_POD),
                    "{{pod}} GPU {{gpu}}, by DCGM",
                    by=_BY_POD,
                ),
                steps=limits.GPU_CELSIUS,
                span=6,
                when_absent=_NO_GPU,
                height=8,
            ),
            rows(
                612,
                "XIDs: the driver's critical events",
                "XID events by number, since the exporter started. 13, 31, 43, 45: the program's "
                "fault, look at its log. 48, 63, 64, 94, 95: memory. 74, 136, 144 to 150: NVLink. "
                "46, 109, 119, 120, 143, 158: reset the card. 79: it fell off the bus, drain and "
                "reboot. Click a number for the runbook.",
                Q(worst(_gpu("xid_events_total"), f"{BY_GPU}, xid"), "events"),
                Q(worst(_gpu("xid_last_age_seconds"), f"{BY_GPU}, xid"), "last"),
                columns={
                    "xid": Column("XID", width=60, link=RUNBOOK_OF_XIDS),
                    "gpu": Column("GPU", width=60),
                    "instance": Column("Server"),
                    "events": Column("Events", COUNT, width=70),
                    "last": Column("Ago", SECONDS, width=140),
                },
                span=24,
                height=5,
                when_absent="None since the exporter began.",
            ),
        ],
    )
