"""All fuzzed parsers."""

from tools.fuzz.target import Target
from tools.fuzz.targets.api import API_BODIES
from tools.fuzz.targets.checkpoints import CHECKPOINT_CONFIGS, CHECKPOINT_HEADERS
from tools.fuzz.targets.configurations import CONFIGURATIONS, KEY_FILES, WEB_CONFIGURATIONS
from tools.fuzz.targets.events import KV_EVENTS, WIRE_FRAMES
from tools.fuzz.targets.headers import ADMISSIONS, HEADERS
from tools.fuzz.targets.pages import METRICS_PAGES, SERVER_PAGES
from tools.fuzz.targets.streams import COMPRESSED_ANSWERS

TARGETS: tuple[Target, ...] = (
    API_BODIES,
    METRICS_PAGES,
    SERVER_PAGES,
    WIRE_FRAMES,
    KV_EVENTS,
    CHECKPOINT_HEADERS,
    CHECKPOINT_CONFIGS,
    CONFIGURATIONS,
    WEB_CONFIGURATIONS,
    KEY_FILES,
    COMPRESSED_ANSWERS,
    HEADERS,
    ADMISSIONS,
)
