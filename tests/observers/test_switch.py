"""Orders to an observer: noted, and answered with what is so at that moment."""

import os
from dataclasses import dataclass, field

import pytest

from kvscope_events.observers.switch import MAX_PROBLEM, Switch
from kvscope_events.observers.switched import SwitchReply


@dataclass
class Observer:
    live: bool = True
    off_wanted: bool = False
    rests: bool = False
    returning: bool = False

    def step(self) -> None:
        """Carry out what is wanted, as the engine's thread does."""
        self.returning = False
        if self.off_wanted:
            self.rests, self.live = True, False


@dataclass
class Orders(Switch[Observer]):
    observer: Observer = field(default_factory=Observer)
    reason: str = ""
    fault: Exception | None = None

    def refusal(self) -> str:
        return self.reason

    def call_back(self) -> None:
        if self.fault is not None:
            raise self.fault
        self.observer = Observer(returning=True)

    def answer(self, on: bool) -> SwitchReply:
        found = SwitchReply.decoded(self.order(on))
        assert found.pid == os.getpid()
        return found


def test_an_order_is_carried_out_by_the_next_step() -> None:
    orders = Orders()
    assert orders.answer(False).state == "leaving"
    orders.observer.step()
    assert orders.answer(False).state == "off"
    assert orders.answer(True).state == "returning"
    assert orders.answer(True).state == "returning"
    orders.observer.step()
    assert orders.answer(True).state == "on"


def test_an_order_is_withdrawn_by_its_opposite() -> None:
    orders = Orders()
    assert orders.answer(False).state == "leaving"
    assert orders.answer(True).state == "on"
    orders.observer.step()
    assert orders.observer.live


def test_an_observer_that_cannot_be_taken_out_whole_stays_and_says_why() -> None:
    orders = Orders(reason="a part of it would stay")
    found = orders.answer(False)
    assert (found.state, found.problem) == ("cannot be switched", "a part of it would stay")
    assert found.is_final(on=False)
    orders.observer.step()
    assert orders.observer.live
    assert orders.answer(True) == SwitchReply(os.getpid(), "on")


def test_an_order_that_is_being_carried_out_is_not_refused() -> None:
    """Repeated while the engine's thread took the wrappers off, it found some that were gone."""
    orders = Orders()
    assert orders.answer(False).state == "leaving"
    orders.reason = "other code has replaced a method"
    assert orders.answer(False) == SwitchReply(os.getpid(), "leaving")
    orders.observer.step()
    assert orders.answer(False) == SwitchReply(os.getpid(), "off")


@pytest.mark.parametrize("on", [False, True])
def test_one_that_ended_by_a_fault_is_neither_refused_nor_called_back(on: bool) -> None:
    orders = Orders(Observer(live=False), reason="a part of it would stay")
    assert orders.answer(on) == SwitchReply(os.getpid(), "stopped")
    assert orders.answer(on).is_final(on=on)


def test_a_fault_of_a_return_is_answered_and_the_next_order_tries_again() -> None:
    orders = Orders(Observer(live=False, rests=True), fault=LookupError("x" * 999))
    found = orders.answer(True)
    assert found.state == "off"
    assert found.problem == f"LookupError: {'x' * 999}"[:MAX_PROBLEM]
    assert found.is_final(on=True)
    orders.fault = None
    assert orders.answer(True).state == "returning"
