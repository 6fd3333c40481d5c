"""Scrapers that go away in the middle of a page, and many at once."""

import threading

from tools.chaos.target import Target, request, reset

_CLIENTS = 8


def aborted_scrapes(target: Target) -> None:
    """Pages whose reader resets the connection before, at and after the first byte."""
    number = 0
    while not target.over:
        number += 1
        port = (target.api_port, target.metrics_port)[number % 2]
        try:
            made = target.connect(port, receive_bytes=2048)
            made.sendall(request("GET", "/metrics"))
            if number % 3:
                made.recv(1)
        except OSError:
            target.wait(0.1)
            continue
        reset(made)
        target.wait(0.02)


def many_scrapers(target: Target) -> None:
    """Eight that ask for page after page on both ports, each on a new connection."""

    def scrape(port: int) -> None:
        while not target.over:
            target.send(request("GET", "/metrics"), port)
            target.wait(0.2)

    threads = [
        threading.Thread(target=scrape, args=((target.api_port, target.metrics_port)[index % 2],))
        for index in range(_CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
