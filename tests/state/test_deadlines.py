"""Deadlines pass once, in their order, and only if nobody moved them."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from fanlog.state.groups.deadlines import Deadlines


def test_deadlines_pass_in_their_order_and_those_that_moved_pass_late() -> None:
    async def test() -> list[object]:
        passed: list[object] = []
        last = asyncio.Event()

        def note(key: object) -> None:
            passed.append(key)
            if key == "last":
                last.set()

        deadlines = Deadlines(asyncio.get_running_loop(), note)
        now = deadlines.now_ms()
        deadlines.set("last", now + 60)
        deadlines.set("moved forward", now + 5)
        deadlines.set("moved forward", now + 40)
        deadlines.set("moved back", now + 50)
        deadlines.set("moved back", now + 10)
        deadlines.set("cleared", now + 15)
        deadlines.clear("cleared")
        deadlines.set("cleared and set again", now + 20)
        deadlines.clear("cleared and set again")
        deadlines.set("cleared and set again", now + 30)
        await asyncio.wait_for(last.wait(), 10)
        deadlines.close()
        return passed

    expected = ["moved back", "cleared and set again", "moved forward", "last"]
    assert asyncio.run(test()) == expected


def test_a_deadline_may_be_set_by_one_that_passes() -> None:
    async def test() -> None:
        done = asyncio.Event()

        def again(key: object) -> None:
            assert isinstance(key, int)
            if key == 0:
                done.set()
            else:
                deadlines.set(key - 1, deadlines.now_ms())

        deadlines = Deadlines(asyncio.get_running_loop(), again)
        deadlines.set(50, deadlines.now_ms())
        await asyncio.wait_for(done.wait(), 10)

    asyncio.run(test())


class EarlyLoop:
    """A loop that wakes a fraction of a millisecond before it was asked to, as uvloop may."""

    def __init__(self) -> None:
        self.now = 100.0
        self.call: tuple[float, Callable[[], None]] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None]) -> Any:
        self.call = (when, call)
        return object()

    def wake(self) -> None:
        assert self.call is not None
        when, call = self.call
        self.now = when - 0.0004
        call()


def test_a_deadline_that_passed_lies_behind_whoever_is_told() -> None:
    loop = EarlyLoop()
    told: list[tuple[object, int]] = []
    deadlines = Deadlines(
        cast(asyncio.AbstractEventLoop, loop), lambda key: told.append((key, deadlines.now_ms()))
    )
    at = deadlines.now_ms() + 300
    deadlines.set("rebalance", at)
    loop.wake()
    assert told == [("rebalance", at)]
