"""A pool as vLLM builds it: layers in groups that share blocks of one size.

Layers that keep different things (all tokens, a window, a state) go into groups of equally many
layers; every block of the pool holds as many tokens of one group as its bytes allow, so a sequence
takes the sum of its groups' blocks. Source: vLLM 0.32, v1/core/kv_cache_utils.py with the layouts
that lay out layer after layer, and Platform._align_hybrid_block_size;
tests/vllm/test_planned_pools.py compares.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvscope.plan.cache import KVLayer
from kvscope.plan.layouts import MixerKind
from kvscope.plan.packing import packed
from kvscope_engine.sizing.config_json import ConfigError
from kvscope_engine.sizing.dtypes import Dtype

_KERNEL_BLOCK = 16
"""Tokens that attention kernels take at once: every block size is a multiple."""
_LATENT_BLOCK = 128
"""The same for latent attention beside states."""
_UNEVEN = 1.5
"""If the kinds' numbers of layers differ by less, groups have the larger one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRules:
    """Settings that determine the groups, together with the model's layers."""

    block_size: int
    kv_dtype: Dtype
    conv_dtype: Dtype
    state_dtype: Dtype
    tensor: int = 1
    context: int = 1
    """GPUs among which the tokens of a sequence are divided."""
    in_flight: int
    """Tokens scheduled and not settled: a window keeps them as well."""
    drafts: int = 0
    """Tokens speculated in a step."""
    prefix_caching: bool = True
    """Then a state needs further blocks, to be kept while the next one grows."""
    windows: bool = True
    """False: layers that see a window keep all tokens nevertheless."""
    packed_fp8: bool = True
    """Sparse attention packs latent vectors in fp8 with their scales."""
    encoder: int = 0
    """Tokens of an encoder's output that cross-attention layers keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The part of a block that belongs to one layer. Layers with equal pages can share a group."""

    kind: MixerKind
    block_size: int
    """Tokens; of a state: how often it can be kept for the prefix cache."""
    nbytes: int
    window: int | None = None
    elements: int = 0
    """Elements of a token; layers with different heads do not share a group."""
    checkpoints: int = 0

    @property
    def uniform(self) -> tuple[str, int | None, int]:
        """Layers that agree in this need equally many blocks, whatever the bytes of their pages."""
        kind = "full" if self.kind in ("latent", "indexer") else self.kind
        return kind, self.window, self.block_size

    def blocks(self, tokens: int, rules: PoolRules) -> int:
        """Blocks of one sequence, as vLLM reserves them."""
        if self.kind == "state":
            return (2 + self.checkpoints if rules.prefix_caching else 1) + rules.drafts
        if self.kind == "cross":
            return -(-rules.encoder // self.block_size)
        if self.window is None:
            own = -(-tokens // rules.context)
            return -(-own // self.block_size)
        if self.kind == "chunked":
            return -(-min(tokens, self.window + rules.in_flight) // self.block_size)
        kept = min(tokens, self.window - 1 + rules.in_flight)
        return -(-kept // self.block_size) + 1  # a window may begin within a block


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a table of blocks."""

    page: Page
    pages: tuple[tuple[int, int], ...]
    """Layer and bytes of each member; bytes differ where kinds are alike and heads are not."""

    def nbytes(self, layers: range) -> int:
        """Bytes in a block that belong to `layers`, the ones of a pipeline stage."""
        return sum(nbytes for layer, nbytes in self.pages if layer in layers)


def groups_of(layers: Sequence[KVLayer], rules: PoolRules) -> tuple[Group, ...]:
    """The groups of a model. Raises ConfigError if vLLM cannot build a pool for it."""
    pages = _pages(layers, rules)
    members = [
        (page, (layer.layer, page.nbytes)) for page, layer in zip(pages, layers, strict=True)
    ]
    if not members:
        return ()
    if len({page.uniform for page in pages}) == 1:
        return (Group(pages[0], tuple(member for _, member in members)),)
    if any(layer.tokens_per_entry > 1 for layer in layers):  # its kernels have blocks outermost
        buckets = packed([(page.uniform, page.nbytes) for page in pages])
        return tuple(
            Group(pages[bucket[0]], tuple(members[number][1] for number in bucket))
            for bucket in buckets
        )
    try:
        unified = _unified(pages)
    except ConfigError:
        if not rules.windows or any(layer.kind == "state" for layer in layers):
            raise
        return groups_of(layers, replace(rules, windows=False))  # as vLLM falls back
    alike: dict[Page, list[int]] = {}
    for page, layer in zip(unified, layers, strict=True):
        alike.setdefault(page, []).append(layer.layer)
    size = _group_size([len(bucket) for bucket in alike.values()])
    groups = []
    for page, bucket in alike.items():
        number = -(-len(bucket) // size)
        groups += [
            Group(page, tuple((layer, page.nbytes) for layer in bucket[first::number]))
            for first in range(number)
        ]
    return tuple(groups)


def _group_size(counts: list[int]) -> int:
    least, most = min(counts), max(counts)
    return most if most < least * _UNEVEN else least


def _pages(layers: Sequence[KVLayer], rules: PoolRules) -> list[Page]:
    """One for each layer, before their sizes are made equal."""
    states = [_state_bytes(layer, rules) for layer in layers if layer.state is not None]
    attention = [layer for layer in layers if layer.state is None]
    block_size, state_page = rules.block_size, max(states, default=0)
    if state_page and attention:
        block_size, state_page = _aligned(attention[0], state_page, rules)
    pages = []
    for layer in layers:
        if layer.state is not None:
            nbytes = max(state_page, _state_bytes(layer, rules)) if attention else state_page
            pages.append(
                Page(
                    kind="state",
                    block_size=block_size,
                    nbytes=nbytes,
                    checkpoints=layer.state.checkpoints,
                )
            )
            continue
        window = layer.window if rules.windows or layer.kind == "cross" else None
        tokens = layer.block_size or block_size
        pages.append(
            Page(
                kind="full" if window is None and layer.window else layer.kind,
                block_size=tokens,
                nbytes=_page_bytes(layer, tokens, rules),
                window=window,
                elements=layer.elements(rules.tensor),
            )
        )
    return pages


def _page_bytes(layer: KVLayer, tokens: int, rules: PoolRules) -> int:
    plain = layer if rules.packed_fp8 else replace(layer, fp8_bytes=None)
    return plain.page_bytes(rules.kv_dtype, tokens, rules.tensor)


def _state_bytes(layer: KVLayer, rules: PoolRules) -> int:
    assert layer.state is not None
    return layer.state.nbytes(rules.conv_dtype, rules.state_dtype, rules.tensor, rules.drafts)


def _aligned(attention: KVLayer, state_page: int, rules: PoolRules) -> tuple[int, int]:
    """Tokens of a block that is at least as large as a state, and the bytes of both."""
    least = max(_KERNEL_BLOCK, rules.block_size)
    if attention.kind == "latent":
        least = max(least, _LATENT_BLOCK)
    token = _page_bytes(attention, _KERNEL_BLOCK, rules) // _KERNEL_BLOCK
    needed = least * -(-state_page // (least * token))
    block_size = max(rules.block_size, -(-needed // _KERNEL_BLOCK) * _KERNEL_BLOCK)
    return block_size, block_size * token


def _unified(pages: list[Page]) -> list[Page]:
    """Pages of equal bytes: longer blocks where that works out, else padding."""
    largest = max(page.nbytes for page in pages)
    unified = []
    for page in pages:
        if page.nbytes == largest or page.kind == "state":
            unified.append(replace(page, nbytes=largest))
        elif largest % page.nbytes == 0:
            times = largest // page.nbytes
            unified.append(replace(page, nbytes=largest, block_size=page.block_size * times))
        elif page.kind in ("latent", "indexer"):
            raise ConfigError("the pages of this model's layers have sizes that vLLM cannot unify")
        else:
            unified.append(replace(page, nbytes=largest))
    return unified
