"""A draft model beside the one that is planned: its layers in the pool, its weights on the GPUs."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from kvscope.plan.cache import KVLayer
from kvscope.plan.parallel import Parallelism
from kvscope.plan.shape import ModelShape, shape_from_config
from kvscope.plan.storage import Storage
from kvscope.plan.weights import Matrix, Part, Split, Weights
from kvscope_engine.sizing.config_json import Config, ConfigError
from kvscope_events.printable import one_line

_OWN = ("mtp", "deepseek_mtp", "qwen3_next_mtp")
_NONE = ("ngram", "ngram_gpu", "suffix")


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Drafting as vLLM's --speculative-config describes it."""

    tokens: int = 0
    """Drafted in a step."""
    draft: ModelShape | None = None
    """None: nothing that takes memory of a GPU."""

    def layers(self, last: int) -> tuple[KVLayer, ...]:
        """Memory that the draft keeps. last: the target's last layer, in whose stage it runs."""
        kept = () if self.draft is None else self.draft.layers
        return tuple(replace(layer, layer=last) for layer in kept)

    def weight_bytes(self, tensor: int, storage: Storage) -> int:
        """Bytes of its weights on one GPU. storage: where its config.json names none."""
        draft = self.draft
        if draft is None or draft.weights is None:
            return 0
        stored = draft.storage or storage
        parallel = Parallelism(tensor=tensor)
        return draft.weights.on_gpus(stored.matrix_bytes, stored.rest.nbytes, parallel)[0]


class _Options(msgspec.Struct):
    """The keys of vLLM's configuration that decide about memory; others are passed over."""

    num_speculative_tokens: int
    model: str | None = None
    method: str | None = None


def speculation_of(
    text: str, target: ModelShape, find_config: Callable[[str], Config]
) -> Speculation:
    """text: JSON, as for vLLM. Raises ConfigError, or ValueError for JSON of another form."""
    try:
        options = msgspec.json.decode(text, type=_Options)
    except msgspec.DecodeError as error:
        raise ValueError(f"--speculative-config: {error}") from None
    if options.num_speculative_tokens < 1:
        raise ValueError("--speculative-config: num_speculative_tokens must be positive")
    draft = None
    if options.method in _OWN:
        draft = _own_module(target)
    elif options.model is not None:
        draft = shape_from_config(find_config(options.model), options.model)
        if draft.weights is None:
            raise ConfigError(f"{draft.name}: the weights of this draft model cannot be counted")
    elif options.method not in _NONE:
        raise ValueError(
            f"--speculative-config: method {one_line(repr(options.method), 40)} needs a model"
        )
    return Speculation(tokens=options.num_speculative_tokens, draft=draft)


def _own_module(target: ModelShape) -> ModelShape:
    """A model's own layer for multi-token prediction: its last layer once more, and a projection.

    Embedding and head are the target's.
    """
    last = target.num_layers - 1
    kept = tuple(layer for layer in target.layers if layer.layer == last)
    if target.weights is None or target.widths is None or not kept:
        raise ConfigError(f"{target.name}: the weights of its MTP module cannot be counted")
    hidden = target.widths.hidden
    joined = Matrix(
        module="eh_proj", rows=hidden, columns=2 * hidden, split=Split.NONE, linear=False
    )
    layer = target.weights.layers[last]
    part = Part((*layer.matrices, joined), layer.vectors + 3 * hidden)
    return replace(
        target,
        name="MTP",
        num_layers=1,
        layers=kept,
        weights=Weights(embedding=Part(), layers=(part,), head=Part()),
    )
