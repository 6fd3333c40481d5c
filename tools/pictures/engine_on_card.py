"""`python -m tools.pictures.engine_on_card serve ...`: kvscope's own command on the simulated card.

FAKE_NVML_STATE and CARD_ORDERS name its files; LD_LIBRARY_PATH leads to the driver's double.
"""

import os
import threading
from pathlib import Path
from typing import Any

import kvscope_engine.build
from kvscope.cli.app import main
from kvscope_engine.block_pool import BlockPool
from kvscope_engine.model.runner import ModelRunner
from kvscope_engine.step_plan import SampledToken, StepPlan
from tools.pictures.card import BYTES_PER_BLOCK, Card


def put_on(card: Card) -> None:
    """The runner's memory is the card's from now on; what it computes stays as it was."""
    compute = ModelRunner.execute

    def execute(runner: ModelRunner, plan: StepPlan) -> list[SampledToken | None]:
        card.before_step(plan.num_tokens)
        return compute(runner, plan)

    def pool(num_blocks: int, block_size: int, bus: Any, **settings: Any) -> BlockPool:
        card.hold_pool(num_blocks)
        settings["bytes_per_block"] = BYTES_PER_BLOCK
        return BlockPool(num_blocks, block_size, bus, **settings)

    setattr(ModelRunner, "execute", execute)  # noqa: B010 - mypy: no assignment to a method
    setattr(ModelRunner, "sample_memory", lambda runner: card.sample())  # noqa: B010
    setattr(ModelRunner, "drop_caches", lambda runner: card.drop_caches())  # noqa: B010
    setattr(kvscope_engine.build, "BlockPool", pool)  # noqa: B010


if __name__ == "__main__":
    card = Card(Path(os.environ["FAKE_NVML_STATE"]), Path(os.environ["CARD_ORDERS"]))
    put_on(card)
    threading.Thread(target=card.write_forever, name="card", daemon=True).start()
    main()
