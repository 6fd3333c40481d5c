"""A sidecar whose servers answer with huge pages keeps nothing of them."""

import pytest

from benchmarks.lying_pages import TARGET_MIB, highest_resident_mib


@pytest.mark.nightly
@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.parametrize("mib", [40, 300], ids=["over the limit", "far over it"])
def test_six_servers_that_lie_leave_no_page_in_memory(mib: int) -> None:
    assert highest_resident_mib(75, mib << 20, print) < TARGET_MIB
