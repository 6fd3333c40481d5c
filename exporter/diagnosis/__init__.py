"""What works here and what does not, and why: findings, without a screen to show them on."""

from exporter.diagnosis.finding import Finding, Status
from exporter.diagnosis.gpus import GpuReport, gpu_findings, gpu_reports
from exporter.diagnosis.host import host_findings
from exporter.diagnosis.target import DEFAULT_URL, target_findings

__all__ = [
    "DEFAULT_URL",
    "Finding",
    "GpuReport",
    "Status",
    "gpu_findings",
    "gpu_reports",
    "host_findings",
    "target_findings",
]
