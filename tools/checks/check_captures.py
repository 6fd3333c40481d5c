"""Reads captures of KV events and checks the counts: `python -m tools.checks.check_captures DIR`.

DIR has a folder for each capture, with `expected.json` beside the messages: vLLM in both encodings
and with long hashes, two ranks, two tiers, SGLang of two versions, Dynamo. A capture is a sequence
of messages, each a byte with the number of frames and then, for each frame, its length in four
bytes, big-endian, and its bytes. Each is read directly, and published again on real sockets, once
to a reader that is there and once to one that comes late and asks for a replay. Ends with 1 if a
figure differs.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvscope_events.events import Batch
from kvscope_exporter.clock import Clock
from kvscope_exporter.sources.kv_events import KvEventsSource
from kvscope_exporter.sources.kv_events.decoder import DecodedMessage, Decoder
from kvscope_exporter.sources.kv_events.framing import read_answer, read_live
from kvscope_exporter.sources.kv_events.naming import tier_of
from kvscope_exporter.sources.pipeline import Pipeline
from kvscope_exporter.state import Folds
from kvscope_exporter.state.tiers import Tiers
from tests.kv_events.publisher import Publisher

WAIT_SECONDS = 60
Figures = dict[str, dict[str, int]]
"""By tier."""


def messages(path: Path) -> Iterator[list[bytes]]:
    """Frames of each message."""
    content = memoryview(path.read_bytes())
    while content:
        frames, count, content = [], content[0], content[1:]
        for _ in range(count):
            length = int.from_bytes(content[:4], "big")
            frames.append(bytes(content[4 : 4 + length]))
            content = content[4 + length :]
        yield frames


def captures(directory: Path) -> Iterator[tuple[Path, Path | None, dict[str, Any]]]:
    """Live messages, the replay where there is one, and what is expected of them."""
    for path in sorted(directory.glob("*/expected.json")):
        content = json.loads(path.read_text())
        folder = path.parent
        if "events" in content and "rank0" in content["events"]:
            for rank, expected in content["events"].items():
                yield folder / f"kv_events.{rank}.bin", folder / f"kv_replay.{rank}.bin", expected
        elif "events" in content:
            tiers = content.get("tiers_when_a_clear_touches_gpu_only")
            expected = content["events"] if tiers is None else content["events"] | {"tiers": tiers}
            yield folder / "kv_events.bin", folder / "kv_replay.bin", expected
            for name in ("arrays", "bytes"):
                if name in content:
                    other = content[name].get("events", content["events"])
                    yield folder / f"kv_events.{name}.bin", None, other
        else:
            for version, capture in content.items():
                if isinstance(capture, dict) and "events" in capture:
                    is_named = (folder / f"kv_events.{version}.bin").exists()
                    middle = f".{version}" if is_named else ""
                    live = folder / f"kv_events{middle}.bin"
                    yield live, folder / f"kv_replay{middle}.bin", capture["events"]


def by_tier(counts: dict[str, int]) -> dict[str, int]:
    """Counts by medium as counts by tier."""
    return {tier_of(None if medium == "null" else medium): n for medium, n in counts.items()}


def wanted(expected: dict[str, Any]) -> Figures:
    """Figures that the fold must have."""
    tiers = expected.get("tiers")
    if tiers is not None:  # counted with clears of the device alone
        names, unmatched = tiers["end"], tiers["removed_unknown"]
    else:
        names = expected["end"]["resident_hashes"]
        unmatched = dict.fromkeys(names, expected["removed_but_unknown"])
    figures: Figures = {
        "stored": by_tier(expected["stored_hashes"]),
        "removed": by_tier(expected["removed_hashes"]),
        "names": by_tier(names),
        "unmatched": {tier: n for tier, n in by_tier(unmatched).items() if n},
    }
    if tiers is None:
        figures["blocks"] = dict.fromkeys(figures["names"], expected["end"]["resident_blocks"])
    figures["cleared"] = {"device": expected["events"].get("AllBlocksCleared", 0)}
    return figures


def said(tiers: Tiers) -> Figures:
    """Figures that the fold has."""
    content = tiers.tiers.items()
    for _, tier in content:
        tier.check()
    return {
        "stored": {name: tier.stored for name, tier in content},
        "removed": {name: tier.removed for name, tier in content},
        "names": {name: len(tier.blocks) for name, tier in content},
        "blocks": {name: tier.num_blocks for name, tier in content},
    }


def read_directly(path: Path) -> Tiers:
    tiers, decoder = Tiers(), Decoder()
    for frames in messages(path):
        message = read_live(frames)
        assert message is not None, "not a live message"
        decoded = decoder.decode(message.payload)
        assert isinstance(decoded, DecodedMessage), decoded
        assert not decoded.unknown
        tiers.on_batch(Batch(message.seq, 0, decoded.events))
    return tiers


def read_from_sockets(path: Path, *, late: bool) -> tuple[Tiers, KvEventsSource]:
    """Published again under numbers from 0, by a server with a replay."""
    with tempfile.TemporaryDirectory() as directory:
        endpoints = f"ipc://{directory}/events", f"ipc://{directory}/replay"
        publisher = Publisher(*endpoints)
        payloads = [frames[-1] for frames in messages(path)]
        if late:
            for payload in payloads:
                publisher.send(payload)
        clock = Clock()
        source = KvEventsSource(
            endpoints[0], replay=endpoints[1], server="vllm", engine="0", clock=clock
        )
        made: list[Folds] = []

        def folds() -> Folds:
            made.append(Folds([Tiers]))
            return made[-1]

        pipeline = Pipeline(source, lambda: tuple(folds()), clock)
        pipeline.start()
        _wait(lambda: source.state_known)
        if not late:
            for payload in payloads:
                publisher.send(payload)
        _wait(lambda: source._reader._tracker._expected == len(payloads) and source.state_known)
        pipeline.stop()
        source.close()
        publisher.close()
        return made[-1][Tiers], source


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.01)


def check_replay(live: Path, replay: Path) -> str:
    """The replay's messages must be the live ones, word for word; returns what was compared."""
    known = {m.seq: m.payload for m in map(read_live, messages(live)) if m is not None}
    answers = [read_answer(frames) for frames in messages(replay)]
    assert all(answer is not None for answer in answers)
    batches = [answer for answer in answers if answer is not None and not answer.is_end]
    assert all(known[batch.seq] == batch.payload for batch in batches)
    assert answers[-1] is not None
    assert answers[-1].is_end
    frames = len(next(messages(replay)))
    return f"replay: {len(batches)} messages of {frames} frames as live"


def main(directory: Path) -> int:
    differences = found = 0
    for live, replay, expected in captures(directory):
        found += 1
        want = wanted(expected)
        late, source = read_from_sockets(live, late=True)
        there, _ = read_from_sockets(live, late=False)
        name = f"{live.parent.name}/{live.name}"
        for how, tiers in (("directly", read_directly(live)), ("late", late), ("live", there)):
            got = said(tiers)
            wrong = {figure: got[figure] for figure in want if got[figure] != want[figure]}
            differences += bool(wrong)
            print(f"{name} {how}: {f'DIFFERS {wrong} from {want}' if wrong else 'as expected'}")
        print(f"  {expected['messages']} messages, {got}, gaps {source.gaps}")
        if replay is not None and replay.exists():
            print(f"  {check_replay(live, replay)}")
    print(f"{found} captures, {differences} differences")
    return int(differences > 0 or not found)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
