"""The GPUs that this process may use, by CUDA_VISIBLE_DEVICES, which CUDA obeys and NVML ignores.

Source: CUDA programming guide, "CUDA Environment Variables". Cases that it leaves open (`2nd` for
2, a GPU named twice, numbers and UUIDs in one list) are read like torch.cuda does, which the engine
uses.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kvscope_exporter.machine.gpu.sample import Identity

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
DEVICE_ORDER = "CUDA_DEVICE_ORDER"
_NUMBER = re.compile(r"\s*([+-]?[0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Visible:
    """NVML's indices, ascending, and a remark for the log."""

    indices: tuple[int, ...]
    remark: str | None = None
    """Set if some GPUs are hidden, or if it is unclear which: then all are watched."""


def visible(
    environment: Mapping[str, str], gpus: Sequence[Identity], mig: Mapping[str, int]
) -> Visible:
    """The GPUs that CUDA would use, out of all GPUs of the host in NVML's order.

    mig: index of the parent by UUID of the MIG device; needed only where `names_mig`.
    """
    every = tuple(gpu.index for gpu in gpus)
    text = environment.get(VISIBLE_DEVICES)
    if text is None:
        return Visible(every)
    setting = f"{VISIBLE_DEVICES}={text}" if text else f"{VISIBLE_DEVICES} is empty"
    entries = text.split(",")
    found: tuple[int, ...] | None
    if names_mig(environment):
        found = _parent(entries[0], gpus, mig)  # CUDA shows only one instance, whatever follows
        doubt = "no GPU here has this instance"
    elif text.startswith("GPU-"):
        found = _listed(entries, lambda entry: _by_uuid(entry, gpus))
        doubt = ""
    else:
        found = _listed(entries, lambda entry: _by_number(entry, every))
        if 0 < len(found) < len(every) and not _same_order(environment, gpus):
            found = None
        doubt = (
            "CUDA and NVML may count cards of several models differently: "
            f"set {DEVICE_ORDER}=PCI_BUS_ID"
        )
    if found is None:
        return Visible(every, f"watching every GPU: {setting}; {doubt}")
    if len(found) == len(every):
        return Visible(every)
    return Visible(found, f"watching {len(found)} of {len(every)} GPUs: {setting}")


def names_mig(environment: Mapping[str, str]) -> bool:
    """Whether the list names an instance of a GPU."""
    return environment.get(VISIBLE_DEVICES, "").startswith("MIG-")


def _listed(entries: Sequence[str], find: Callable[[str], int | None]) -> tuple[int, ...]:
    """The GPUs up to the first invalid entry; empty if a GPU is named twice."""
    found: list[int] = []
    for entry in entries:
        index = find(entry)
        if index is None:
            break
        if index in found:
            return ()
        found.append(index)
    return tuple(sorted(found))


def _by_number(entry: str, every: tuple[int, ...]) -> int | None:
    match = _NUMBER.match(entry)
    return int(match[1]) if match and int(match[1]) in every else None


def _by_uuid(start: str, gpus: Sequence[Identity]) -> int | None:
    """The only GPU whose UUID begins like this, else the only one lost before its UUID was read."""
    if not start.startswith("GPU-"):
        return None
    found = [gpu.index for gpu in gpus if gpu.uuid.startswith(start)]
    found = found or [gpu.index for gpu in gpus if not gpu.uuid]
    return found[0] if len(found) == 1 else None


def _parent(entry: str, gpus: Sequence[Identity], mig: Mapping[str, int]) -> tuple[int, ...] | None:
    """Parent of `MIG-GPU-<uuid>/<gi>/<ci>` or `MIG-<uuid>`; None: unknown."""
    if entry.startswith("MIG-GPU-"):
        gpu, _, _ = entry.removeprefix("MIG-").partition("/")
        return _listed([gpu], lambda start: _by_uuid(start, gpus))
    parents = {index for uuid, index in mig.items() if uuid.startswith(entry)}
    return tuple(parents) if len(parents) == 1 else None


def _same_order(environment: Mapping[str, str], gpus: Sequence[Identity]) -> bool:
    """Whether CUDA numbers the GPUs as NVML does. By default CUDA begins with the fastest."""
    models = {gpu.name for gpu in gpus if gpu.name is not None}
    return len(models) <= 1 or environment.get(DEVICE_ORDER) == "PCI_BUS_ID"
