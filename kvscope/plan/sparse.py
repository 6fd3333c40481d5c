"""Caches of sparse attention: an index beside the cache, and caches that compress.

Sources, in vLLM 0.32: model_executor/models/deepseek_v2.py, models/deepseek_v4/ (attention.py,
compressor.py) and models/minimax_m3/common/indexer.py.
"""

from kvscope.plan.cache import KVLayer
from kvscope_engine.sizing.config_json import ConfigError, Fields

_SCALED = 128
"""Elements of an index that share a scale of four bytes."""
_FP32 = 4
_BLOCK, _WINDOW_BLOCK = 256, 64
"""Tokens of DeepSeek-V4's blocks, those of its kernels."""
_PAGE = 576
"""Bytes of which its pages are multiples."""
_RATIOS = {4: (2, 4), 128: (1, 8)}
"""By the tokens that become one: windows that the compressor keeps, and tokens of its block."""


def packed_fp8(fields: Fields) -> int:
    """Bytes of a latent vector in fp8 as the sparse kernel packs it: scales in fp32 for each 128,
    and the rotary part in 16 bits."""
    rank = fields.integer("kv_lora_rank")
    return rank + rank // _SCALED * _FP32 + 2 * fields.integer("qk_rope_head_dim")


def indexer(fields: Fields, layer: int) -> KVLayer:
    """The keys by which a layer of DeepSeek-V3.2 selects tokens."""
    return KVLayer(kind="indexer", layer=layer, entry_bytes=_index(fields))


def _index(fields: Fields) -> int:
    """Bytes of a key in fp8, with its scale."""
    size = fields.integer("index_head_dim")
    return size + size // _SCALED * _FP32


def block_index(fields: Fields, layer: int) -> tuple[KVLayer, ...]:
    """MiniMax-M3's key of 16 bits by which a sparse layer selects blocks."""
    sparse = fields.inner("sparse_attention_config")
    listed = sparse.items("sparse_attention_freq") or []
    if not sparse.flag("use_sparse_attention") or layer >= len(listed) or not listed[layer]:
        return ()
    size = sparse.integer("sparse_index_dim")
    return (KVLayer(kind="indexer", layer=layer, entry_bytes=2 * size),)


def _rates(fields: Fields) -> list[object]:
    """The same as transformers writes it: the kind of each layer, and the kinds' rates."""
    rates = fields.inner("compress_rates")
    return [rates.optional_integer(str(name)) or 0 for name in fields.items("layer_types") or []]


def compressed(fields: Fields, layer: int) -> tuple[KVLayer, ...]:
    """DeepSeek-V4: a window in every layer, and in most a compressed cache with its compressor.

    A layer whose ratio is 4 has an index, compressed likewise. Raises ConfigError for a ratio that
    vLLM has no kernel for.
    """
    ratios = fields.items("compress_ratios") or _rates(fields)
    ratio = ratios[layer] if layer < len(ratios) else None
    size = fields.integer("head_dim")
    rotary = fields.integer("qk_rope_head_dim")
    entry = size - rotary + 2 * rotary + 8  # fp8, the rotary part in 16 bits, and the scales
    window = KVLayer(
        kind="sliding",
        layer=layer,
        entry_bytes=entry,
        window=fields.integer("sliding_window"),
        alignment=_PAGE,
        block_size=_WINDOW_BLOCK,
    )
    if ratio in (0, 1):
        return (window,)
    if not isinstance(ratio, int) or ratio not in _RATIOS:
        raise ConfigError(
            f"config.json: compress_ratios has {ratio!r} for layer {layer}, and 0, 1, 4 and 128 "
            "are known: describe the caches in a file and give it to --layers-file"
        )

    def states(width: int) -> KVLayer:
        times, block_size = _RATIOS[ratio]
        return KVLayer(
            kind="sliding",
            layer=layer,
            entry_bytes=2 * times * width * _FP32,
            window=times * ratio,
            alignment=_PAGE,
            block_size=block_size,
        )

    def cache(kind: str, nbytes: int) -> KVLayer:
        return KVLayer(
            kind="latent" if kind == "latent" else "indexer",
            layer=layer,
            entry_bytes=nbytes,
            tokens_per_entry=ratio,
            alignment=_PAGE,
            block_size=_BLOCK,
        )

    index: tuple[KVLayer, ...] = ()
    if ratio == min(_RATIOS):
        index = (cache("indexer", _index(fields)), states(fields.integer("index_head_dim")))
    return (*index, window, cache("latent", entry), states(size))
