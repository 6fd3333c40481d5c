"""Machines to simulate. Sizes and reserves are those of real cards."""

from collections.abc import Callable

from tests.fakes.nvml.simulated import State

MIB = 2**20
GIB = 2**30
UUID = "GPU-{:08d}-2222-3333-4444-555555555555"

_DRIVER: State = {
    "driver_version": "590.48.01",
    "nvml_version": "13.590.48.01",
    "cuda_driver_version": 13010,
}
_DATACENTER: State = {
    "utilization.gpu": 97,
    "utilization.memory": 41,
    "temperature": 52,
    "field.82": 61,
    "power_mw": 627400,
    "power_limit_mw": 700000,
    "energy_mj": 123456789,
    "clock.sm": 1980,
    "clock.memory": 3201,
    "clocks_event_reasons": "0x4",
    "ecc.corrected": 0,
    "ecc.uncorrected": 0,
    "remapped.correctable": 0,
    "remapped.uncorrectable": 0,
    "remapped.pending": 0,
    "remapped.failed": 0,
    "field.230": 0,
    "field.197": 987654321,
    "field.198": 123456789,
    "pcie.lanes": 16,
    "pcie.generation": 5,
    "pcie.lanes.max": 16,
    "pcie.generation.max": 5,
    "field.138": 4096,
    "field.139": 8192,
    "mig_mode": 0,
}


def machine(*gpus: State) -> State:
    """A machine with these GPUs, each given without its index."""
    state: State = {"count": len(gpus), **_DRIVER}
    for index, gpu in enumerate(gpus):
        identity = {"uuid": UUID.format(index), "pci_bus_id": f"00000000:{index + 1:02X}:00.0"}
        state |= {f"gpu.{index}.{key}": value for key, value in (identity | gpu).items()}
    return state


def h200(processes: str = "4242:31138512896", used: int = 31157387264) -> State:
    """A server of 29 GiB and 18 MiB without an owner."""
    return {**_card("NVIDIA H200", 143771, 614, used), **_DATACENTER, "processes": processes}


def h100() -> State:
    """Idle."""
    return {**_card("NVIDIA H100 80GB HBM3", 81559, 479, 0), **_DATACENTER, "processes": ""}


def l40s() -> State:
    """Neither NVLink nor a sensor in its memory."""
    absent: State = {"field.82": None, "field.138": None, "field.139": None}
    busy: State = {"processes": f"4242:{20 * GIB},77:{2 * GIB}"}
    return {
        **_card("NVIDIA L40S", 46068, 609, 22 * GIB + 20 * MIB),
        **_DATACENTER,
        **absent,
        **busy,
    }


def desktop() -> State:
    """A display on it: memory that no compute process has; no ECC, rows, energy or MIG."""
    absent: State = dict.fromkeys(
        (
            *("ecc.corrected", "ecc.uncorrected", "remapped.correctable", "mig_mode"),
            *("field.82", "field.138", "field.139", "field.230"),
        )
    )
    card = _card("NVIDIA GeForce RTX 4080 SUPER", 16376, 434, 4 * GIB + 700 * MIB)
    return {**card, **_DATACENTER, **absent, "processes": f"4242:{4 * GIB}"}


def mig() -> State:
    """The parent keeps its memory to itself; two instances of 3g.71gb, one of them shared."""
    parent: State = {
        "memory.total": "!4",
        "utilization.gpu": None,
        "mig_mode": 1,
        "processes": "!4",
    }
    state: State = {**_card("NVIDIA H200", 143771, 614, 0), **_DATACENTER, **parent}
    for number, instance in enumerate((1, 1, 2)):
        state |= {
            f"mig.{number}.uuid": f"MIG-{number:08d}-0000-0000-0000-000000000001",
            f"mig.{number}.instance": instance,
            f"mig.{number}.memory.total": 74088185856,
            f"mig.{number}.memory.reserved": 55 * MIB,
            f"mig.{number}.memory.used": instance * GIB,
        }
    return state


def not_available() -> State:
    """Nothing but its memory: every other reading is refused, processes without bytes (WSL)."""
    return {**_card("NVIDIA H200", 143771, 614, 30 * GIB), "processes": "4242:none,77:none"}


def _card(name: str, total_mib: int, reserved_mib: int, used: int) -> State:
    return {
        "name": name,
        "memory.total": total_mib * MIB,
        "memory.reserved": reserved_mib * MIB,
        "memory.used": used,
    }


STATES: dict[str, Callable[[], State]] = {
    "h200": lambda: machine(h200()),
    "h100": lambda: machine(h100()),
    "l40s": lambda: machine(l40s()),
    "desktop": lambda: machine(desktop()),
    "mig": lambda: machine(mig()),
    "not_available": lambda: machine(not_available()),
    "two_h200": lambda: machine(h200(), h200("", 0)),
    "processes_denied": lambda: machine({**h200(), "processes": "!4"}),
    "one_process_not_available": lambda: machine(h200(f"4242:{29 * GIB},77:none")),
    "one_lost": lambda: machine(h200(), {**h200(), "error": 15}),
}
