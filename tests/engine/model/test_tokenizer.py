"""Encoding, chat templates, and text that comes in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as BackendTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers import TokenizersBackend

from kvscope_engine.model.chat_template import ChatTemplateError
from kvscope_engine.model.demo import demo_tokenizer
from kvscope_engine.model.tokenizer import Tokenizer

BYTES = Tokenizer(demo_tokenizer(), frozenset())


def sentencepiece_like() -> Tokenizer:
    """Spaces as ▁, unknown characters as bytes: the other common kind of vocabulary."""
    characters = ["▁", "H", "e", "l", "o", "!", "é"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *characters]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    backend = BackendTokenizer(
        models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>")
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return Tokenizer(
        TokenizersBackend(tokenizer_object=backend, bos_token="<s>", eos_token="</s>"), frozenset()
    )


WORDS = sentencepiece_like()


def pieces(tokenizer: Tokenizer, token_ids: list[int]) -> list[str]:
    detokenizer = tokenizer.detokenizer()
    return [*(detokenizer.add([token_id]) for token_id in token_ids), detokenizer.finish()]


def test_demo_tokens_are_bytes() -> None:
    assert BYTES.encode("hé") == [104, 195, 169]
    assert BYTES.eos_token_ids == {257}
    assert BYTES.decode([104, 195, 169, 257]) == "hé"


def test_chat_template_is_rendered_and_opens_the_answer() -> None:
    text = BYTES.chat_template.render([{"role": "user", "content": "hi"}])
    ids = BYTES.encode(text, special_tokens=False)
    assert ids == [256, *b"user: hi\n", 256, *b"assistant:"]


def test_no_chat_template() -> None:
    with pytest.raises(ChatTemplateError, match="has no chat template"):
        assert WORDS.chat_template


def test_a_template_that_refuses() -> None:
    backend = demo_tokenizer()
    backend.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ChatTemplateError, match="refused the messages: roles must alternate"):
        Tokenizer(backend, frozenset()).chat_template.render([{"role": "user", "content": "hi"}])


def test_eos_of_tokenizer_and_generation_config() -> None:
    assert Tokenizer(demo_tokenizer(), frozenset({3, 4})).eos_token_ids == {3, 4, 257}


def test_one_token_for_log_probabilities() -> None:
    assert BYTES.decode_token(104) == "h"
    assert BYTES.decode_token(195) == "\N{REPLACEMENT CHARACTER}"
    assert BYTES.decode_token(257) == "</s>"


def test_half_characters_wait() -> None:
    assert pieces(BYTES, BYTES.encode("a€😀")) == ["a", "", "", "€", "", "", "", "😀", ""]


def test_an_unfinished_character_at_the_end_is_replaced() -> None:
    assert pieces(BYTES, [97, 0xE2, 0x82]) == ["a", "", "", "\N{REPLACEMENT CHARACTER}"]


def test_special_and_unknown_tokens_have_no_text() -> None:
    assert pieces(BYTES, [256, 97, 257, 100_000, 98]) == ["", "a", "", "", "b", ""]


@given(st.lists(st.integers(0, 258), max_size=60))
def test_pieces_of_any_bytes_join_to_the_full_decoding(token_ids: list[int]) -> None:
    assert "".join(pieces(BYTES, token_ids)) == BYTES.decode(token_ids)


@given(st.text(max_size=30), st.integers(1, 4))
def test_several_tokens_at_a_time(text: str, step: int) -> None:
    token_ids = BYTES.encode(text)
    detokenizer = BYTES.detokenizer()
    parts = [detokenizer.add(token_ids[i : i + step]) for i in range(0, len(token_ids), step)]
    assert "".join([*parts, detokenizer.finish()]) == text


@given(st.text("Helo! é😀€w", max_size=20))
def test_window_detokenizer_joins_to_the_full_decoding(text: str) -> None:
    token_ids = WORDS.encode(text)
    parts = pieces(WORDS, token_ids)
    assert "".join(parts) == WORDS.decode(token_ids)
    assert not any("\N{REPLACEMENT CHARACTER}" in part for part in parts)


def test_window_detokenizer_does_not_wait_forever() -> None:
    broken = WORDS.encode("😀")[-1]
    parts = pieces(WORDS, [broken] * 40)
    assert any(parts[:20])
