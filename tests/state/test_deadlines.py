"""Deadlines pass once, in their order, and only if nobody moved them."""

import asyncio

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
