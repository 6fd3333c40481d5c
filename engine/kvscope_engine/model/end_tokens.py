"""The tokens that end a sequence, from a checkpoint's configuration; invalid ones are refused."""

from collections.abc import Mapping

from transformers import PreTrainedConfig

from kvscope_engine.model.checkpoint import GENERATION
from kvscope_engine.model.errors import CheckpointError
from kvscope_engine.sizing.config_json import CONFIG
from kvscope_events.printable import one_line

MAX_END_TOKENS = 1024

_FIELD = "eos_token_id"


def end_token_ids(
    model: str, generation: Mapping[str, object], config: PreTrainedConfig
) -> frozenset[int]:
    """Those of generation_config.json if it names any, else those of config.json.

    Raises CheckpointError: a model that never ends would be served otherwise.
    """
    file, found = GENERATION, generation.get(_FIELD)
    if found is None:
        file, found = CONFIG, getattr(config.get_text_config(decoder=True), _FIELD, None)
    if found is None:
        return frozenset()
    token_ids = found if isinstance(found, list) else [found]
    if len(token_ids) > MAX_END_TOKENS or not all(type(token) is int for token in token_ids):
        raise CheckpointError(
            model,
            f"{file} has an {_FIELD} that is not a token: {one_line(repr(found), 60)}",
            "give the number of a token, or a list of them",
        )
    return frozenset(token_ids)
