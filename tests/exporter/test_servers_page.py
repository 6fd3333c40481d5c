"""docs/servers.md says what the page obeys, and the engine says of itself what the page claims."""

from engine.introduction import ENGINE_TELLS as ENGINE_SAYS
from exporter.documents.servers import servers_page
from exporter.sources.attachments import ENGINE_TELLS
from kvscope_events.events import EVENT_NAMES
from tests.repo.checkout import ROOT


def test_the_page_is_the_committed_one() -> None:
    committed = (ROOT / "docs" / "servers.md").read_text()
    assert committed == servers_page(), "run: make docs"


def test_our_engine_tells_what_the_page_says() -> None:
    assert set(ENGINE_SAYS) == ENGINE_TELLS
    assert set(EVENT_NAMES) > ENGINE_TELLS


def test_without_prefix_caching_only_its_families_are_absent() -> None:
    for line in servers_page().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[3] == "absent":
            assert "prefix" in cells[0], line
