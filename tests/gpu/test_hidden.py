"""GPUs that CUDA_VISIBLE_DEVICES hides: they have no series, and their users are no neighbours."""

import logging
from collections.abc import Callable

import pytest

from kvscope_exporter.machine.gpu import GpuPoller
from tests.fakes.nvml import GIB, STATES, Simulated, h200, l40s, machine, mig
from tests.fakes.nvml.states import UUID
from tests.gpu.scrapes import OWN_FAMILIES, SERVER_PID, Scrapes, torch_sample
from tests.support.waiting import wait_for

Start = Callable[..., GpuPoller]
VISIBLE = "CUDA_VISIBLE_DEVICES"
NEIGHBOUR = 77


def gpus(scrapes: Scrapes, name: str = "kvscope_gpu_up") -> set[str]:
    return {key[0] for key in scrapes.series(name)}


def eight() -> dict[str, object]:
    """A server of its own on each card."""
    return machine(*(h200(f"{SERVER_PID + n}:{29 * GIB}") for n in range(8)))


@pytest.mark.parametrize(
    ("environment", "watched"),
    [
        ({}, "01234567"),
        ({VISIBLE: "3"}, "3"),
        ({VISIBLE: "6,2"}, "26"),
        ({VISIBLE: "0,2,-1,1"}, "02"),
        ({VISIBLE: UUID.format(5)}, "5"),
        ({VISIBLE: "GPU-00000004,GPU-00000001"}, "14"),
        ({VISIBLE: f"MIG-{UUID.format(7)}/1/0"}, "7"),
    ],
)
def test_of_eight_cards_only_the_visible_ones_have_series(
    hardware: Simulated, start: Start, environment: dict[str, str], watched: str
) -> None:
    hardware.become(eight())
    scrapes = Scrapes(start(environment=environment))
    found = set()
    for family in scrapes.exporter.registry.collect():
        found |= {s.labels["gpu"] for s in family.samples if "gpu" in s.labels}
    assert found == gpus(scrapes) == gpus(scrapes, "kvscope_gpu_info") == {*watched}
    assert scrapes.value("kvscope_gpu_up", gpu=watched[0], uuid=UUID.format(int(watched[0]))) == 1
    assert scrapes.value("kvscope_gpu_nvml_up") == 1


@pytest.mark.parametrize("text", ["", "-1", "8"])
def test_no_card_is_no_series_and_no_failure(hardware: Simulated, start: Start, text: str) -> None:
    hardware.become(eight())
    scrapes = Scrapes(start(environment={VISIBLE: text}))
    assert scrapes.names("kvscope_gpu") == OWN_FAMILIES
    assert scrapes.value("kvscope_gpu_nvml_up") == 1
    hardware.change({"count": 0})
    wait_for(lambda: scrapes.value("kvscope_gpu_nvml_up") == 0)


def test_a_server_on_a_hidden_card_is_nobodys_neighbour(hardware: Simulated, start: Start) -> None:
    mine, other = h200(f"{SERVER_PID}:{29 * GIB}"), h200(f"{NEIGHBOUR}:{100 * GIB}", 100 * GIB)
    hardware.become(machine(other, mine))
    uuid = UUID.format(1)
    scrapes = Scrapes(start(environment={VISIBLE: "1"}))
    scrapes.tell(torch_sample(device_uuid=uuid))
    assert scrapes.components(uuid)["other_processes"] == 0
    assert not scrapes.components(UUID.format(0))
    assert scrapes.series("kvscope_gpu_processes") == {
        ("1", uuid, "server"): 1,
        ("1", uuid, "other"): 0,
    }
    assert scrapes.value("kvscope_gpu_process_memory_bytes", owner="other") == 0
    hardware.change({"gpu.1.processes": f"{SERVER_PID}:{29 * GIB},{NEIGHBOUR}:{GIB}"})
    wait_for(lambda: scrapes.value("kvscope_gpu_processes", owner="other") == 1)
    assert scrapes.components(uuid)["other_processes"] == GIB, "on the same card it is one"


def test_a_hidden_card_is_asked_nothing_but_its_name(hardware: Simulated, start: Start) -> None:
    hardware.become(eight())
    hardware.change({f"gpu.{n}.memory.total": "!999" for n in range(7)})
    scrapes = Scrapes(start(environment={VISIBLE: "7"}))
    assert not scrapes.series("kvscope_gpu_nvml_errors_total")
    hardware.change({"gpu.2.error": 15})
    calls = hardware.calls("nvmlDeviceGetMemoryInfo_v2")
    wait_for(lambda: hardware.calls("nvmlDeviceGetMemoryInfo_v2") > calls + 5)
    assert not scrapes.series("kvscope_gpu_nvml_errors_total")
    assert gpus(scrapes) == {"7"}


def test_xids_of_a_hidden_card_are_not_ours(hardware: Simulated, start: Start) -> None:
    hardware.become(STATES["two_h200"]())
    scrapes = Scrapes(start(environment={VISIBLE: "1"}))
    hardware.raise_xid(0, 79)
    hardware.raise_xid(1, 31)
    wait_for(lambda: scrapes.value("kvscope_gpu_xid_events_total", xid="31") == 1)
    assert gpus(scrapes, "kvscope_gpu_xid_events_total") == {"1"}


def test_cards_of_several_models_are_all_watched_with_one_line_until_their_order_is_said(
    hardware: Simulated, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hardware.become(machine(l40s(), h200()))
    poller = start(environment={VISIBLE: "0"})
    assert gpus(Scrapes(poller)) == {"0", "1"}
    poller.release()
    poller.resume()
    wait_for(lambda: poller.state == "polling")
    (line,) = (r.message for r in caplog.records if "watching" in r.message)
    assert "every GPU: CUDA_VISIBLE_DEVICES=0; " in line
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in line
    ordered = {VISIBLE: "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert gpus(Scrapes(start(environment=ordered))) == {"0"}


def test_an_instance_of_mig_has_its_gpu_watched(
    hardware: Simulated, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hardware.become(machine(h200(), mig(), h200()))
    for uuid in ("MIG-00000001-0000-0000-0000-000000000001", "MIG-00000002"):
        scrapes = Scrapes(start(environment={VISIBLE: uuid}))
        assert gpus(scrapes) == gpus(scrapes, "kvscope_gpu_mig_memory_bytes") == {"1"}
    hardware.change({"gpu.1.mig_mode": "!4"})
    assert gpus(Scrapes(start(environment={VISIBLE: "MIG-00000002"}))) == {*"012"}
    assert "watching every GPU: CUDA_VISIBLE_DEVICES=MIG-00000002; " in caplog.text


def test_a_card_that_was_lost_from_the_start_is_found_by_its_uuid(
    hardware: Simulated, start: Start
) -> None:
    """Nothing else can be the one that is asked for, until it says who it is."""
    hardware.become(STATES["one_lost"]())
    ours = Scrapes(start(environment={VISIBLE: UUID.format(1)}))
    assert ours.series("kvscope_gpu_up") == {("1",): 0}, "not even its UUID is known"
    theirs = Scrapes(start(environment={VISIBLE: "GPU-ffff"}))
    assert ours.series("kvscope_gpu_up") == theirs.series("kvscope_gpu_up")
    hardware.change({"gpu.1.error": None})
    wait_for(lambda: ours.value("kvscope_gpu_up", gpu="1", uuid=UUID.format(1)) == 1)
    wait_for(lambda: not theirs.series("kvscope_gpu_up"))


def test_a_number_of_gpus_that_changes_is_read_by_the_list_anew(
    hardware: Simulated, start: Start
) -> None:
    hardware.become(machine(h200()))
    scrapes = Scrapes(start(environment={VISIBLE: "1"}))
    assert not gpus(scrapes)
    hardware.become(STATES["two_h200"]())
    wait_for(lambda: gpus(scrapes) == {"1"})
