"""The least that answers HTTP: no parsing, one fixed answer, in a process with nothing else to do.

What a scrape of it takes is what the machine takes; used by `scrape_cost`. Prints its port.
"""

import asyncio

BODY = b"# HELP bare A gauge.\n# TYPE bare gauge\nbare 1.0\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


class Bare(asyncio.Protocol):
    """Whatever arrives is a request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, _data: bytes) -> None:
        self._transport.write(ANSWER)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
