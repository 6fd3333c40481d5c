"""The replicas of a fleet process: those that are not counted, and names that differ."""

from collections.abc import Iterable, Iterator

import msgspec

from kvscope.doctor import Finding, Status
from kvscope.doctor.identity import Asker, Identity
from kvscope.doctor.observers import Observer
from kvscope_events.events import Hello
from kvscope_exporter.fleet.answer import FleetAnswer

_FAMILY = "\nkvscope_fleet_replicas{"


def fleet_findings(asker: Asker, server: Identity) -> list[Finding]:
    """Empty for a server that follows no fleet."""
    if server.page is None or _FAMILY not in server.page:
        return []
    try:
        answer = msgspec.convert(asker.json("/api/fleet"), FleetAnswer)
    except msgspec.ValidationError as error:
        return [Finding("fleet", "problem", f"/api/fleet is not of this version: {error}")]
    return list(_findings(answer))


def _findings(answer: FleetAnswer) -> Iterator[Finding]:
    counted = sum(replica.state == "counted" for replica in answer.replicas)
    status: Status = "ok" if counted else "problem"
    yield Finding("fleet", status, f"{counted} of {len(answer.replicas)} replicas are counted")
    for replica in answer.replicas:
        if replica.state != "counted":
            name = "/".join(filter(None, (replica.sidecar, replica.server, replica.engine)))
            yield Finding("replica", "note", f"{name} is {replica.state}: {replica.reason}")
    for line in answer.apart:
        yield Finding("names", "problem", line)


def name_findings(found: Iterable[Observer]) -> list[Finding]:
    """Engines of one model on this machine whose names of blocks cannot be compared."""
    engines: dict[str, list[Hello]] = {}
    for observer in found:
        hello = observer.hello
        if hello.worker is None and hello.enable_prefix_caching is not False:
            engines.setdefault(hello.model_name, []).append(hello)
    return [
        Finding(
            "names",
            "note",
            f"the {len(hellos)} engines of {model} here name their blocks differently, so that a "
            "fleet cannot compare them: give them one block size, hash algorithm and "
            "PYTHONHASHSEED",
        )
        for model, hellos in engines.items()
        if len({hello.name_space for hello in hellos}) > 1
    ]
