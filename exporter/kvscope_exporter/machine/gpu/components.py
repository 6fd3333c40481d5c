"""The use of every byte of a GPU: components that add up to its total, or no components at all.

Nothing is clamped. The parts come from three moments (memory, process list, torch's figures), and
their mismatch is shown as `unattributed`, which may be negative.
"""

from collections.abc import Set
from dataclasses import dataclass

from kvscope_events.events import DeviceMemorySampled
from kvscope_exporter.machine.gpu.sample import Memory, ProcessList


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """The server's processes on a device, and the others. Bytes are None if one has no figure."""

    server: int
    other: int
    server_bytes: int | None
    other_bytes: int | None


def owners(listed: ProcessList | None, server_pids: Set[int]) -> Owners | None:
    """Owners in a list of processes; None if it is not known which are the server's.

    server_pids: all of them must be listed. A running server that is missing from the list is
    hidden by the pid namespace: unknown, not 0. An empty set means that it is known to run
    elsewhere.
    """
    if listed is None or not server_pids <= {process.pid for process in listed.processes}:
        return None
    ours = [p.used_bytes for p in listed.processes if p.pid in server_pids]
    others = [p.used_bytes for p in listed.processes if p.pid not in server_pids]
    bytes_known = None not in ours and None not in others
    return Owners(
        server=len(ours),
        other=len(others),
        server_bytes=sum(used or 0 for used in ours) if bytes_known else None,
        other_bytes=sum(used or 0 for used in others) if bytes_known else None,
    )


def components(
    memory: Memory, owned: Owners | None, torch: DeviceMemorySampled | None
) -> dict[str, int] | None:
    """Bytes by component, which sum to `memory.total` exactly; None if the driver does not split.

    torch: figures of the server's allocator on this device. If they are missing, `server_process`
    stands for the whole server. If the bytes of processes are missing, `unsplit` stands for
    everything outside torch.
    """
    if memory.used is None or memory.reserved is None:
        return None
    parts = {"driver_reserved": memory.reserved, "free": memory.free}
    held = _torch_parts(torch)
    torch_bytes = sum(held.values())
    if owned is None or owned.server_bytes is None or owned.other_bytes is None:
        return {**parts, **held, "unsplit": memory.used - torch_bytes}
    if held:
        parts |= {**held, "non_torch": owned.server_bytes - torch_bytes}
    else:
        parts["server_process"] = owned.server_bytes
    parts["other_processes"] = owned.other_bytes
    parts["unattributed"] = memory.used - owned.server_bytes - owned.other_bytes
    return parts


def headroom(memory: Memory, torch: DeviceMemorySampled) -> int | None:
    """The most that the next allocation can get: free memory, and cache that can be returned."""
    if torch.active_bytes is None or torch.reserved_bytes is None:
        return None
    if torch.inactive_split_bytes is None:
        return None
    cached = torch.reserved_bytes - torch.active_bytes
    return memory.free + cached - torch.inactive_split_bytes


def _torch_parts(torch: DeviceMemorySampled | None) -> dict[str, int]:
    """torch's reserved bytes, by use; empty if its figures are unknown."""
    if torch is None:
        return {}
    allocated, active, reserved = torch.allocated_bytes, torch.active_bytes, torch.reserved_bytes
    if allocated is None or active is None or reserved is None:
        return {}
    return {
        "weights": torch.weights_bytes,
        "kv_pool": torch.kv_pool_bytes,
        "torch_live_other": allocated - torch.weights_bytes - torch.kv_pool_bytes,
        "torch_pending": active - allocated,
        "torch_cached": reserved - active,
    }
