"""Random prompts have nothing in common: whatever is preempted and resumed, there are no first
hits.

A preempted request finds its own blocks again. A server that counted this as hits of the cache once
showed a rate of 32 % where 0.2 % was true.
"""

from random import Random

from kvscope_exporter.targets.exporter import in_process
from tests.exporter.machine import MACHINE
from tests.exporter.page import hello, value
from tests.support.accounting import Accounting

REQUESTS = 200
TOKENS = 50_000


def test_preempted_requests_that_find_their_own_blocks_are_no_hits_of_the_cache() -> None:
    random = Random(1)
    engine = Accounting(num_blocks=24, max_num_seqs=8, max_model_len=96, max_num_batched_tokens=256)
    exporter = in_process(
        engine.bus.subscribe(1 << 16), machine=MACHINE, compat={"vllm", "vllm-legacy"}
    )
    engine.bus.emit(hello())
    while len(engine.sequences) < REQUESTS or engine.live:
        while len(engine.sequences) < REQUESTS and len(engine.live) < 8:
            prompt = [random.randrange(TOKENS) for _ in range(random.randint(17, 33))]
            engine.add(prompt, 40)
        engine.step()
    never = [sequence for sequence in engine.sequences if not sequence.num_preemptions]
    assert never == engine.sequences[:1], "the oldest running request is never a victim"

    def tokens(what: str, phase: str) -> float:
        found = value(exporter, f"kvscope_prefix_cache_{what}_tokens_total", phase=phase)
        assert found is not None
        return found

    assert tokens("queried", "first") == sum(s.prompt_length for s in engine.sequences)
    assert tokens("hit", "first") / tokens("queried", "first") < 0.005
    both_hit = tokens("hit", "first") + tokens("hit", "resumed")
    both_queried = tokens("queried", "first") + tokens("queried", "resumed")
    assert both_hit / both_queried > 0.3, "together they would look like a cache that works"

    assert value(exporter, "vllm:prefix_cache_queries_total") == tokens("queried", "first")
    assert value(exporter, "vllm:prefix_cache_hits_total") == tokens("hit", "first")
