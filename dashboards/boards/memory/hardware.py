"""Memory: is the hardware well?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import among, outstanding
from dashboards.kit.frame import Row
from dashboards.kit.links import RUNBOOK_OF_XIDS
from dashboards.kit.panels import COUNT, PER_SECOND, RATIO, SECONDS, Q, graph, numbers, timeline
from dashboards.kit.queries import (
    BY_GPU,
    GPU,
    GPU_LEGEND,
    SERVER,
    gpu,
    of_chosen,
    or_zero,
    rate,
    series,
    total,
    worst,
)
from dashboards.kit.tables import Column, rows

_SAMPLE_AGE = series("kvscope_gpu_sample_age_seconds", SERVER)
_NO_GPU = "No GPU is read here: `kvscope doctor` shows why."


def _gpu(name: str, **labels: str) -> str:
    return gpu(f"kvscope_gpu_{name}", **labels)


def _gpu_rate(name: str) -> str:
    return of_chosen(rate(f"kvscope_gpu_{name}", GPU))


def _of_server(name: str) -> str:
    return of_chosen(series(f"kvscope_gpu_{name}", SERVER))


def _traffic(link: str) -> str:
    return total(worst(_gpu_rate(f"{link}_bytes_total"), "uuid, direction"), "direction")


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
    return or_zero(total(_each_card(_gpu("xid_events_total"))), _gpu("up"))


_POWER = worst(f"{_gpu('power_watts')} / {_gpu('power_limit_watts')}", BY_GPU)


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
    recovery = {0: ("nothing", "green"), 1: ("reset the GPU", "red"), 2: ("reboot", "red")} | {
        3: ("drain peers", "orange"),
        4: ("drain and reset", "red"),
        5: ("IMEX recovery", "red"),
        6: ("bus reset", "red"),
        7: ("reboot the system", "red"),
    }
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
                span=8,
                height=7,
                when_absent="no GPU",
            ),
            timeline(
                602,
                "The device asks for",
                "The action that the driver recommends for the device. If it is not 'nothing', "
                "drain the server first, then do it.",
                among(worst(_gpu("recovery_action"), BY_GPU), GPU_LEGEND, by=BY_GPU),
                meanings=recovery,
                span=6,
                height=7,
                when_absent="The driver does not say (before 570).",
            ),
            timeline(
                603,
                "Clocks are held back by",
                "hw_* and sw_thermal: too hot, or the power supply limits the card; tell the "
                "operator of the machine. sw_power_cap: at its power limit, normal under full "
                "load, hence grey.",
                among(_held_back(), "{{reason}}, GPU {{gpu}}", by=_BY_REASON, rank="avg"),
                meanings=limits.CLOCKS_HELD_BACK,
                span=10,
                height=7,
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
            ),
            graph(
                605,
                "Temperature",
                "Temperatures of the GPU and of its memory. Above the line clocks go down and "
                "every step gets slower: check cooling and neighbours.",
                "celsius",
                *_cards("temperature_celsius"),
                _memories("memory_temperature_celsius"),
                steps=limits.GPU_CELSIUS,
                span=6,
                when_absent=_NO_GPU,
            ),
            graph(
                606,
                "Power, of the limit",
                "Near 100 % under load is normal. Low under load: the GPU waits for something "
                "else, or its clocks were lowered by hand.",
                RATIO,
                *outstanding(_POWER, GPU_LEGEND, by=BY_GPU),
                steps=limits.POWER_SHARE,
                span=6,
                when_absent=_NO_GPU,
            ),
            graph(
                607,
                "How busy?",
                "Share of the time with a kernel running, and with memory read or written. 100 % "
                "busy with little memory activity: many small kernels; raise the batch.",
                RATIO,
                *_cards("utilization_ratio"),
                _memories("memory_activity_ratio"),
                high=1,
                span=6,
                when_absent=_NO_GPU,
            ),
            graph(
                608,
                "Traffic",
                "Traffic over PCIe and NVLink. PCIe busy during decode: something swaps or copies "
                "through the host.",
                "binBps",
                Q(_traffic("pcie"), "PCIe {{direction}}"),
                Q(_traffic("nvlink"), "NVLink {{direction}}"),
                span=8,
                listed=True,
                when_absent=_NO_GPU,
            ),
            graph(
                609,
                "Clocks",
                "Clocks of the multiprocessors and of the memory. If they fall under load, see "
                "above what holds them back.",
                "hertz",
                *_cards("sm_clock_hertz", lowest=True),
                _memories("memory_clock_hertz", lowest=True),
                span=8,
                when_absent=_NO_GPU,
            ),
            graph(
                610,
                "How old are these readings?",
                "Age of the last sample of the GPUs, and how long it took. Several seconds: the "
                "driver hangs, and `nvidia-smi` will hang as well.",
                SECONDS,
                among(
                    worst(of_chosen(_SAMPLE_AGE), "instance"),
                    "age, {{instance}}",
                    by="instance",
                ),
                among(
                    worst(_of_server("sample_duration_seconds"), "instance"),
                    "duration, {{instance}}",
                    by="instance",
                ),
                steps=limits.LAG_SECONDS,
                span=8,
                when_absent=_NO_GPU,
            ),
            rows(
                611,
                "Devices",
                "Hardware and its wear: memory rows that were remapped to spare rows, after "
                "correctable errors or uncorrectable ones (then data was lost). Orange that "
                "increases: plan a replacement. A row without a spare one is 'remap failed' "
                "above. PCIe link: its rate relative to the best that card and slot allow; idle "
                "cards lower it.",
                Q(
                    worst(
                        _gpu("info"),
                        f"{BY_GPU}, name, driver_version, cuda_version, pci_bus_id",
                    ),
                    "present",
                ),
                Q(
                    worst(_gpu("remapped_rows_total", cause="correctable"), BY_GPU),
                    "correctable",
                ),
                Q(
                    worst(_gpu("remapped_rows_total", cause="uncorrectable"), BY_GPU),
                    "uncorrectable",
                ),
                Q(worst(_gpu("pcie_link_ratio"), BY_GPU), "link"),
                columns={
                    "uncorrectable": Column(
                        "Remaps, uncorr.", COUNT, limits.SOME_ARE_WORTH_A_LOOK, width=125
                    ),
                    "correctable": Column("Remaps, corr.", COUNT, width=110),
                    "link": Column("PCIe link", RATIO, width=90),
                    "instance": Column("Server"),
                    "gpu": Column("GPU", width=55),
                    "name": Column("Model"),
                    "driver_version": Column("Driver", width=100),
                    "cuda_version": Column("CUDA", width=65),
                    "pci_bus_id": Column("PCI", width=145),
                },
                span=16,
                height=5,
                when_absent=_NO_GPU,
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
                span=8,
                height=5,
                when_absent="None since the exporter began.",
            ),
        ],
    )
