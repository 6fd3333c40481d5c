"""KV pool: how large is it?"""

from dashboards.kit.frame import Row
from dashboards.kit.panels import BYTES, COUNT, Q, numbers
from dashboards.kit.queries import series, total, worst

_USABLE = series("kvscope_kv_usable_blocks")


def row() -> Row:
    return Row(
        700,
        "How large is it?",
        [
            numbers(
                701,
                "Size",
                "Usable blocks, the tokens that they hold, and sequences of the longest length; "
                "summed over the selected engines. Too small? Memory and OOM risk shows how the "
                "pool got its size, `kvscope plan` what another size would hold.",
                COUNT,
                Q(total(_USABLE), "usable blocks"),
                Q(total(series("kvscope_kv_usable_tokens")), "tokens"),
                Q(total(series("kvscope_kv_full_length_sequences")), "sequences of full length"),
                span=12,
                height=4,
            ),
            numbers(
                702,
                "A block",
                "Tokens that one block holds. Small blocks waste less at a sequence's end, large "
                "ones make shorter tables; 16 is the usual choice.",
                COUNT,
                Q(worst(series("kvscope_kv_block_size_tokens")), "tokens"),
                span=4,
                height=4,
            ),
            numbers(
                703,
                "Bytes of a block, and of the usable pool",
                "Bytes of K and V of all layers. If they differ from what `kvscope plan` prints, "
                "the KV dtype is a different one.",
                BYTES,
                Q(worst(series("kvscope_kv_block_size_bytes")), "block"),
                Q(total(f"{_USABLE} * {series('kvscope_kv_block_size_bytes')}"), "pool"),
                span=8,
                height=4,
            ),
        ],
    )
