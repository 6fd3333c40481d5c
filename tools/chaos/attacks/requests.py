"""Right requests, too many of them: more than the queue holds, cancelled and not."""

import threading

from tools.chaos.target import Target, completion, request, reset

_CLIENTS = 48


def request_flood(target: Target) -> None:
    """Long requests side by side, each followed by the next; refused ones come again at once."""

    def repeat(number: int) -> None:
        while not target.over:
            body = completion(n=1 + number % 3, max_tokens=200 + number, prompt=[number] * 300)
            target.post("/v1/completions", body)
            target.wait(0.05)

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def cancelled_requests(target: Target) -> None:
    """Requests whose client leaves while they wait, are computed, or answer."""
    number = 0
    while not target.over:
        number += 1
        body = completion(n=1 + number % 8, max_tokens=300, stream=number % 2 == 0)
        try:
            made = target.connect()
            made.sendall(request("POST", "/v1/completions", body))
        except OSError:
            target.wait(0.1)
            continue
        target.wait(0.05 * (number % 5))
        if number % 2:
            reset(made)
        else:
            made.close()
