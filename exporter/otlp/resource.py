"""The subject of metrics and traces: one resource for each server."""

import functools
from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.version import __version__ as SDK_VERSION

from exporter import build_version

SERVICE_NAME = "kvscope"
_INSTANCE = "service.instance.id"


@functools.cache
def _of_environment() -> Mapping[str, Any]:
    """Read once: the library logs every malformed attribute each time."""
    return dict(OTELResourceDetector().detect().attributes)


def resource_of(instance: str, labels: Mapping[str, str], *, is_only: bool) -> Resource:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.

    is_only: if False, an instance id from the environment, which is that of this process, gets the
    server's own appended, since no two resources may have the same one.
    """
    given = dict(_of_environment())
    if _INSTANCE in given and not is_only:
        given[_INSTANCE] = f"{given[_INSTANCE]}/{instance}"
    return Resource(
        {
            "telemetry.sdk.language": "python",
            "telemetry.sdk.name": "opentelemetry",
            "telemetry.sdk.version": SDK_VERSION,
            "service.name": SERVICE_NAME,
            "service.version": build_version(),
            _INSTANCE: instance,
            **labels,
            **given,
        }
    )
