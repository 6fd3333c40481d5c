"""Answers that are expensive to make: log probabilities by the megabyte, stop strings that almost
match."""

import threading

from tools.chaos.target import Target, chat, completion, request

_CLIENTS = 2


def _side_by_side(target: Target, path: str, body: bytes) -> None:
    def repeat() -> None:
        while not target.over:
            target.post(path, body)

    threads = [threading.Thread(target=repeat) for _ in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def large_log_probabilities(target: Target) -> None:
    """Twenty alternatives for each token of eight sequences."""
    body = chat(
        "hello",
        **{"n": 8, "max_tokens": 400, "logprobs": True, "top_logprobs": 20, "ignore_eos": True},
    )
    _side_by_side(target, "/v1/chat/completions", body)


def streamed_log_probabilities(target: Target) -> None:
    """The same as a stream, which is rendered token by token."""
    body = completion(n=8, max_tokens=400, logprobs=20, stream=True)
    _side_by_side(target, "/v1/completions", body)


def stop_strings(target: Target) -> None:
    """Long stop strings, of which one matches the text so far but for its end."""
    answer = target.send(request("POST", "/v1/completions", completion(max_tokens=500)))
    begun = answer.rpartition(b'"text":"')[2].partition(b'"')[0].decode(errors="replace")
    stops = ["\u4e00" * 5000] * 15 + [begun + "zzz" * 1000]
    body = completion(max_tokens=2000, stop=stops)
    _side_by_side(target, "/v1/completions", body)
