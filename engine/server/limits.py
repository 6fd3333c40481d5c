"""The error for a prompt that does not fit into the model."""

from engine.server.errors import BadRequestError


def prompt_too_long(
    field: str, tokens: int, limit: int, *, at_least: bool = False
) -> BadRequestError:
    """The refusal of a prompt. at_least: the rest of it was not counted."""
    return BadRequestError(
        field,
        f"{field}: {'at least ' if at_least else ''}{tokens} tokens, but the model's limit is "
        f"{limit} and the answer needs at least one: shorten it",
        reason="prompt_too_long",
    )
