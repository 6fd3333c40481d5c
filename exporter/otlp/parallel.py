"""Calls a function for many things at once; unlike a pool's, its threads keep no process alive."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

MAX_THREADS = 16


def in_threads(function: Callable[[T], R], arguments: Sequence[T]) -> list[R]:
    """The results in order. Raises the first error, after all calls have ended."""
    if len(arguments) < 2:
        return [function(argument) for argument in arguments]
    results: dict[int, R] = {}
    errors: dict[int, BaseException] = {}
    waiting = iter(list(enumerate(arguments)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number, argument = next(waiting, (-1, arguments[0]))
            if number < 0:
                return
            try:
                results[number] = function(argument)
            except BaseException as error:
                errors[number] = error

    threads = [
        threading.Thread(target=work, name="kvscope-otlp-collect", daemon=True)
        for _ in range(min(len(arguments), MAX_THREADS))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in sorted(errors):
        raise errors[number]
    return [results[number] for number in range(len(arguments))]
