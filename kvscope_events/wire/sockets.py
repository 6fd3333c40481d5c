"""ZMQ sockets as the wire needs them: bounded queues, bounded messages, no lingering."""

import errno

import zmq

from kvscope_events.wire.errors import EndpointError


def bind(
    context: "zmq.Context[zmq.Socket[bytes]]", address: str, high_water: int, max_bytes: int
) -> "zmq.Socket[bytes]":
    """A publishing socket that reads requests of up to `max_bytes`; raises EndpointError."""
    publisher = context.socket(zmq.XPUB)
    publisher.setsockopt(zmq.LINGER, 0)
    publisher.setsockopt(zmq.SNDHWM, high_water)
    publisher.setsockopt(zmq.RCVHWM, high_water)
    publisher.setsockopt(zmq.MAXMSGSIZE, max_bytes)
    publisher.setsockopt(zmq.XPUB_VERBOSE, 1)  # reports every new reader, for its heartbeat
    publisher.setsockopt(zmq.IPV6, int("[" in address))
    try:
        publisher.bind(address)
    except zmq.ZMQError as error:
        if error.errno == errno.EADDRINUSE:
            raise EndpointError(
                address, "another process listens there", "stop it or use another endpoint"
            ) from error
        raise EndpointError(
            address, f"cannot be bound: {error.strerror}", "use another endpoint"
        ) from error
    return publisher


def connect(
    context: "zmq.Context[zmq.Socket[bytes]]",
    address: str,
    topics: tuple[bytes, ...],
    high_water: int,
    max_bytes: int,
) -> "zmq.Socket[bytes]":
    """A reading socket that can also send requests; ZMQ reconnects it, with limits: see `Link`."""
    reader = context.socket(zmq.XSUB)
    try:
        reader.setsockopt(zmq.LINGER, 0)
        reader.setsockopt(zmq.SNDHWM, high_water)
        reader.setsockopt(zmq.RCVHWM, high_water)
        reader.setsockopt(zmq.MAXMSGSIZE, max_bytes)
        reader.setsockopt(zmq.RECONNECT_IVL, 100)
        reader.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)  # doubled from one attempt to the next
        reader.setsockopt(zmq.IPV6, int("[" in address))
        for topic in topics:
            reader.send(b"\x01" + topic)
        reader.connect(address)
    except BaseException:
        reader.close(linger=0)
        raise
    return reader
