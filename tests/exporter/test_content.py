"""Content lost while a block is referenced: counted if it is reported, absent if it is not."""

from kvscope_events.events import ContentDropped
from tests.exporter.page import HELLO, block_hash, families, hello, make_exporter, put, value

TOTAL = "kvscope_kv_content_dropped_blocks_total"


def test_dropped_blocks_count_by_cause_where_the_engine_tells_them() -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 1, hello(tells=[*HELLO.tells, "ContentDropped"]))
    assert value(exporter, TOTAL, cause="moved") == 0
    names = [block_hash(1), block_hash(2)]
    put(subscription, 1, 2, ContentDropped([1, 2], names, "replaced"))
    put(subscription, 2, 3, ContentDropped([], names[:1], "invalid"))  # reported by its name alone
    assert value(exporter, TOTAL, cause="replaced") == 2
    assert value(exporter, TOTAL, cause="invalid") == 1
    assert value(exporter, TOTAL, cause="moved") == 0


def test_an_engine_that_does_not_tell_it_has_no_such_family() -> None:
    exporter, _ = make_exporter()
    assert TOTAL.removesuffix("_total") not in families(exporter)
