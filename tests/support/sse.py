"""Reads a stream of server-sent events the way OpenAI's clients do."""

import json
from collections.abc import Iterable
from typing import Any


def chunks(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The JSON of each event; asserts the framing, and that [DONE] ends the stream."""
    events = []
    done = False
    for line in lines:
        if not line:
            continue
        assert not done, f"after [DONE]: {line}"
        assert line.startswith("data: "), line
        if line == "data: [DONE]":
            done = True
        else:
            events.append(json.loads(line.removeprefix("data: ")))
    assert done, "no [DONE]"
    return events


def joined(events: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Text, token ids and finish reason of each choice, whichever API it was."""
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        for choice in event["choices"]:
            whole = choices.setdefault(
                choice["index"], {"text": "", "token_ids": [], "finish_reason": None}
            )
            assert whole["finish_reason"] is None, f"a choice goes on after its end: {choice}"
            text = choice["delta"].get("content") if "delta" in choice else choice["text"]
            whole["text"] += text or ""
            whole["token_ids"] += choice.get("token_ids") or []
            whole["finish_reason"] = choice["finish_reason"]
    return choices
