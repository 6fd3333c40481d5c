"""DCGM exporter's figures of cards that no NVML of ours reads, with the labels of our targets.

A pod has the card that the device plugin gave it; DCGM's exporter names that pod, in `exported_pod`
where Prometheus keeps its own.
"""

from kvscope_alerts.rule import Record
from kvscope_alerts.thresholds import JOB
from kvscope_monitoring.selectors import series

XID = "gpu:dcgm_xid:last"
TEMPERATURE = "gpu:dcgm_temperature_celsius:max"
UNCORRECTED = "gpu:dcgm_uncorrected_errors:max"
REMAP_FAILED = "gpu:dcgm_row_remap_failed:max"
MEMORY_USED = "gpu:dcgm_memory_used_mebibytes:max"
MEMORY_FREE = "gpu:dcgm_memory_free_mebibytes:max"
"""For the Memory board, as is the temperature; no alert asks them."""
FAMILIES = {
    XID: "DCGM_FI_DEV_XID_ERRORS",
    TEMPERATURE: "DCGM_FI_DEV_GPU_TEMP",
    UNCORRECTED: "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    REMAP_FAILED: "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    MEMORY_USED: "DCGM_FI_DEV_FB_USED",
    MEMORY_FREE: "DCGM_FI_DEV_FB_FREE",
}
_POD = "cluster, namespace, pod"


def dcgm_records() -> list[Record]:
    return [Record(record=name, expr=_of_our_pods(family)) for name, family in FAMILIES.items()]


def _of_our_pods(family: str) -> str:
    named = family
    for label, source in (
        ("pod", "exported_pod"),
        ("namespace", "exported_namespace"),
        ("uuid", "UUID"),
        ("card", "modelName"),
    ):
        named = f'label_replace({named}, "{label}", "$1", "{source}", "(.+)")'
    target = f'group by ({_POD}, node, job, instance) (up{{job="{JOB}",pod!=""}})'
    return (
        f"max by ({_POD}, gpu, uuid, card) (\n  {named}\n)\n"
        f"* on ({_POD}) group_left (node, job, instance) {target}\n"
        f"unless on (uuid) {series('kvscope_gpu_up')}"
    )
