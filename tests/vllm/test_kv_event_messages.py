"""Our engine's messages are, byte for byte, those that vLLM's types write and read."""

from pathlib import Path

import pytest

from engine.kv_events.messages import Change, Cleared, MessageEncoder, Removed, Stored
from tests.vllm.driven import run_in_vllm

pytestmark = [
    *(pytest.mark.vllm, pytest.mark.nightly, pytest.mark.weekly),
    *(pytest.mark.slow, pytest.mark.timeout(900)),
]

PARENT, CHILD = bytes(range(16)), b"\xff" * 16
CHANGES: list[list[Change]] = [
    [Stored([PARENT, CHILD], None, [1, 2, 3, 70_000], 2, "")],
    [Stored([CHILD], PARENT, [3, 4], 2, ""), Removed([PARENT, CHILD])],
    [Stored([PARENT], None, [1, 2], 2, "tenant")],
    [Cleared()],
]


def test_vllm_reads_our_messages_and_would_have_sent_the_same_bytes(
    vllm_python: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "payloads"
    folder.mkdir()
    for number, changes in enumerate(CHANGES):
        payload = MessageEncoder(int_hashes=True).encode(1.5 + number, changes)
        (folder / f"{number}").write_bytes(payload)
    read, _ = run_in_vllm(vllm_python, tmp_path, "tests.vllm.read_kv_events", str(folder))
    assert [message["same"] for message in read] == [True] * len(CHANGES)
    assert [(message["rank"], message["time"]) for message in read] == [
        (0, 1.5 + number) for number in range(len(CHANGES))
    ]
    assert [[kind for kind, _ in message["events"]] for message in read] == [
        ["BlockStored"],
        ["BlockStored", "BlockRemoved"],
        ["BlockStored"],
        ["AllBlocksCleared"],
    ]
    stored = read[1]["events"][0][1]
    assert stored["block_hashes"] == [0xFFFFFFFFFFFFFFFF]
    assert stored["parent_block_hash"] == 0x08090A0B0C0D0E0F
    assert (stored["token_ids"], stored["block_size"]) == ([3, 4], 2)
    assert (stored["lora_id"], stored["lora_name"], stored["medium"]) == (None, None, "GPU")
    assert (stored["group_idx"], stored["kv_cache_spec_kind"]) == (0, "full_attention")
    assert read[1]["events"][1][1]["block_hashes"] == [0x08090A0B0C0D0E0F, 0xFFFFFFFFFFFFFFFF]
    assert read[2]["events"][0][1]["extra_keys"] == [["tenant"]]
