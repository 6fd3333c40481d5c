"""All fuzzed parsers by name."""

from tests.fuzz.target import Target
from tests.fuzz.targets.api import API_BODIES
from tests.fuzz.targets.checkpoints import CHECKPOINT_CONFIGS, CHECKPOINT_HEADERS
from tests.fuzz.targets.configurations import CONFIGURATIONS
from tests.fuzz.targets.events import KV_EVENTS, WIRE_FRAMES
from tests.fuzz.targets.headers import HEADERS
from tests.fuzz.targets.pages import METRICS_PAGES, SERVER_PAGES
from tests.fuzz.targets.streams import COMPLETION_STREAMS, RETRY_AFTER

_ALL = (
    API_BODIES,
    METRICS_PAGES,
    SERVER_PAGES,
    WIRE_FRAMES,
    KV_EVENTS,
    CHECKPOINT_HEADERS,
    CHECKPOINT_CONFIGS,
    CONFIGURATIONS,
    COMPLETION_STREAMS,
    RETRY_AFTER,
    HEADERS,
)
TARGETS: dict[str, Target] = {target.name: target for target in _ALL}
