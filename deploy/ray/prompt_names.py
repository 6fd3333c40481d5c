"""The names of a prompt's blocks, which any engine would give them, before one has the prompt."""

import msgspec

from deploy.ray.call import Facts, Names
from engine.hashing import PrefixHasher, chain_seed
from engine.model.chat_template import ChatTemplateError, TemplateFailure
from engine.model.tokenizer import Tokenizer
from engine.server.body import decode_body, prompts_of
from engine.server.errors import BadRequestError
from engine.server.protocol import CHAT, COMPLETION, ChatCompletionRequest, CompletionRequest
from exporter.sources.kv_events.naming import name_of

CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"

_completion = msgspec.json.Decoder(CompletionRequest)
_conversation = msgspec.json.Decoder(ChatCompletionRequest)


class PromptNames:
    """Names prompts, on any thread. Blocks for as long as the chat template and the tokenizer."""

    def __init__(self, tokenizer: Tokenizer, facts: Facts) -> None:
        self._tokenizer = tokenizer
        self._facts = facts

    def names(self, path: str, body: bytes) -> Names:
        """The names of the first prompt's full blocks, none for a body that the engine will refuse:
        it says why."""
        try:
            if path == CHAT_PATH:
                tokens, salt = self._conversation(body)
            else:
                tokens, salt = self._prompt(body)
        except (BadRequestError, ChatTemplateError, TemplateFailure):
            return ()
        size = self._facts.block_size
        if len(tokens) > self._facts.max_model_len:
            return ()
        hasher = PrefixHasher(chain_seed(self._facts.model_name, salt=salt), size)
        return tuple(name_of(None, name) for name in hasher.extend(tokens, len(tokens) // size))

    def _conversation(self, raw: bytes) -> tuple[list[int], str]:
        body = decode_body(raw, _conversation, CHAT)
        messages = [{"role": message.role, "content": message.text} for message in body.messages]
        text = self._tokenizer.chat_template.render(messages)
        return self._tokenizer.encode(text, special_tokens=False), body.cache_salt or ""

    def _prompt(self, raw: bytes) -> tuple[list[int], str]:
        body = decode_body(raw, _completion, COMPLETION)
        first = prompts_of(body, self._facts.max_model_len)[0]
        tokens = self._tokenizer.encode(first) if isinstance(first, str) else first
        return tokens, body.cache_salt or ""
