"""Chat templates: what they render, and that one that fails, loops or grows hurts no one else."""

import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from kvscope_engine.build import build_engine
from kvscope_engine.config import SchedulerConfig
from kvscope_engine.model.chat_template import (
    BrokenTemplateError,
    ChatTemplate,
    ChatTemplateError,
    TemplateFailure,
)
from kvscope_engine.model.demo import demo_tokenizer
from kvscope_engine.model.template_process import RENDER_SECONDS
from kvscope_engine.model.tokenizer import Tokenizer
from kvscope_engine.server.app import ApiConfig, create_app
from kvscope_engine.server.dispatch import Dispatcher
from kvscope_engine.server.requests import ServedModel
from kvscope_events.bus import EventBus
from tests.support.server import make_engine_config

HELLO = [{"role": "user", "content": "hello"}]
CHAT = "/v1/chat/completions"

SPOILT = {
    "a type": "{{ messages + 5 }}",
    "a division": "{{ 1 // 0 }}",
    "endless recursion": "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    "too large a range": "{% for i in range(10**9) %}{{ i }}{% endfor %}",
    "another file": "{% include 'other' %}",
    "memory": "{{ ('a' * 3000000000)|length }}",
    "a long text": "{{ 'a' * 200000000 }}",
}
ENDLESS = {
    "one call into C": "{{ (9**(9**(messages|length + 7))) % 7 }}",
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
}
TYPICAL = {
    "ChatML": "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "namespaces and loops": "{%- set ns = namespace(n=0) -%}{%- for m in messages -%}"
    "{%- if loop.first -%}{{ bos_token }}{%- endif -%}{%- set ns.n = ns.n + 1 -%}"
    "{%- if m.role == 'skip' -%}{%- continue -%}{%- endif -%}{{ ns.n }}"
    "{{ m | tojson }}{%- endfor -%}",
    "blocks on lines of their own": "{% if tools %}\nno\n{% endif %}\n  {% for m in messages %}\n"
    "    {{ m.content }}\n  {% endfor %}\n{% generation %}é {{ eos_token }}{% endgeneration %}",
    "functions": "{{ dict(a=1) }}{{ dict.fromkeys(['b']) }}{{ messages | length }}"
    "{{ {'b': 1, 'a': 'é'} | tojson(indent=2, sort_keys=true) }}{{ undefined_name is defined }}",
}


@pytest.fixture
def template() -> Any:
    """Makes templates."""
    return lambda source: ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})


@pytest.mark.parametrize("name", TYPICAL)
def test_a_template_renders_as_in_transformers(template: Any, name: str) -> None:
    messages = [*HELLO, {"role": "skip", "content": " 'x' \n"}, {"role": "user", "content": "é😀"}]
    backend = demo_tokenizer()
    backend.chat_template = TYPICAL[name]
    expected = backend.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert template(TYPICAL[name]).render(messages) == expected


@pytest.mark.parametrize("name", SPOILT)
def test_a_failing_template_is_its_own_fault(template: Any, name: str) -> None:
    spoilt = template(SPOILT[name])
    for _ in range(2):  # what failed once serves again, or is replaced
        with pytest.raises((TemplateFailure, ChatTemplateError)):
            spoilt.render(HELLO)


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.timed
def test_an_endless_template_is_ended(template: Any, name: str) -> None:
    began = time.monotonic()
    with pytest.raises(TemplateFailure, match="it took over"):
        template(ENDLESS[name]).render(HELLO)
    assert time.monotonic() - began < RENDER_SECONDS + 3


def test_a_template_may_refuse_messages(template: Any) -> None:
    strict = template("{% if messages|length > 1 %}{{ raise_exception('one only') }}{% endif %}ok")
    assert strict.render(HELLO) == "ok"
    with pytest.raises(ChatTemplateError, match="refused the messages: one only"):
        strict.render(HELLO * 2)
    assert strict.render(HELLO) == "ok"


@pytest.mark.parametrize(
    "source", ["{% for %}", "{{ x | nofilter }}", "{% if x %}", "{{ " + "(" * 9999]
)
def test_a_template_that_cannot_be_compiled_is_said_at_start(
    template: Any, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = template(source)
    with caplog.at_level(logging.WARNING):
        broken.check()
    (record,) = caplog.records
    assert "chat template is broken, chats cannot be served: " in record.message
    with pytest.raises(BrokenTemplateError):
        broken.render(HELLO)


def test_a_template_that_fails_is_logged_once_a_minute(
    template: Any, caplog: pytest.LogCaptureFixture
) -> None:
    spoilt = template("{{ 1 // 0 }}")
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            with pytest.raises(TemplateFailure):
                spoilt.render(HELLO)
    (record,) = caplog.records
    assert record.message == (
        "the model's chat template failed: ZeroDivisionError: integer division or modulo by zero"
    )


def test_a_template_sees_no_file_and_no_module(template: Any) -> None:
    for source in (
        "{{ messages.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% set n = namespace() %}{% set n.__class__ = 1 %}",
    ):
        with pytest.raises((ChatTemplateError, BrokenTemplateError, TemplateFailure)):
            template(source).render(HELLO)


def test_two_conversations_render_at_once_and_a_slow_one_holds_up_no_other(template: Any) -> None:
    both = template("{% if messages|length > 1 %}" + ENDLESS["loops"] + "{% endif %}quick")
    both.check()

    def fail() -> None:
        with pytest.raises(TemplateFailure):
            both.render(HELLO * 2)

    slow = threading.Thread(target=fail)
    slow.start()
    time.sleep(0.1)
    assert both.render(HELLO) == "quick"
    assert slow.is_alive()
    slow.join()


@pytest.mark.parametrize(
    "text", ["a" * (8 << 20), "a" * (8 << 20) + "\U0001f600", "\u4e00" * 2796202]
)
@pytest.mark.timed
def test_the_longest_conversations_fit_into_the_memory_of_a_child(text: str) -> None:
    rendered = ChatTemplate(TYPICAL["ChatML"], {}).render([{"role": "user", "content": text}])
    assert len(rendered) > len(text)


def test_a_child_that_starts_too_late_ends_one_chat_and_not_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = "{% if messages[0].content == 'loop' %}" + ENDLESS["loops"] + "{% endif %}hello"
    template = ChatTemplate(source, {})
    template.check()
    with pytest.raises(TemplateFailure):
        template.render([{"role": "user", "content": "loop"}])
    with monkeypatch.context() as patched:
        patched.setattr("kvscope_engine.model.template_process.START_SECONDS", -1.0)
        with pytest.raises(TemplateFailure) as failed:
            template.render(HELLO)
    assert not isinstance(failed.value, BrokenTemplateError)
    assert template.render(HELLO) == "hello"


def children() -> set[int]:
    """Processes of this one's."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(pid) for found in lists for pid in found.read_text().split()}


def test_closing_ends_the_child_processes_and_a_later_chat_starts_another() -> None:
    template = ChatTemplate("hello", {})
    before = children()
    template.check()
    (child,) = children() - before
    template.close()
    assert child not in children()
    assert template.render(HELLO) == "hello"
    template.close()
    assert children() <= before


def test_the_engine_tries_the_template_when_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[ChatTemplate] = []
    monkeypatch.setattr(ChatTemplate, "check", lambda self: tried.append(self))
    engine = build_engine(make_engine_config(), EventBus())
    assert tried == [engine.tokenizer.chat_template]


def answer(source: str) -> tuple[int, dict[str, Any]]:
    backend = demo_tokenizer()
    backend.chat_template = source
    app = create_app(
        Dispatcher(),
        Tokenizer(backend, frozenset()),
        ServedModel(name="m", vocab_size=259, block_size=16, created=0),
        SchedulerConfig(max_model_len=64),
        ApiConfig(),
    )
    response = TestClient(app).post(CHAT, json={"messages": HELLO})
    return response.status_code, response.json()["error"]


@pytest.mark.parametrize(
    ("source", "status", "kind"),
    [
        ("{{ 1 // 0 }}", 500, "internal_error"),
        ("{% for %}", 501, "not_implemented"),
    ],
)
def test_a_spoilt_template_blames_no_client(source: str, status: int, kind: str) -> None:
    got, error = answer(source)
    assert (got, error["type"], error["code"], error["param"]) == (status, kind, status, None)
    assert "chat template" in error["message"]
