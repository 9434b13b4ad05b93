"""Whatever clients, clocks and disks do to a group, in whatever order, some things hold.

Each step is held against `invariants.validate` and against `World`: no request is answered twice, no
generation is assigned twice, generations only grow. On top of that, members that were given an assignment
were given the one of their generation, and in the end nobody is left waiting.
"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from fanlog.state.groups.model import Joined, State, Synced

from .world import OK, RULES, World, subscription

INSTANCES = st.sampled_from([None, None, "one", "two"])
TIMEOUTS = st.sampled_from([1_000, 5_000, 20_000])
PROTOCOLS = st.sampled_from(
    [
        (("range", subscription("t")),),
        (("range", subscription("t")), ("sticky", subscription("t"))),
        (("sticky", subscription("t", owned=b"1")), ("range", subscription("u"))),
        (("sticky", subscription("u")),),
    ]
)


class GroupMachine(RuleBasedStateMachine):
    ids = Bundle("ids")

    @initialize(delay=st.sampled_from([0, 300]), at_once=st.booleans())
    def begin(self, delay: int, at_once: bool) -> None:
        self.world = World(replace(RULES, initial_rebalance_delay_ms=delay), store_at_once=at_once)
        self.instances: dict[str, str | None] = {}
        self.syncs: dict[int, tuple[str, int]] = {}

    @rule(
        target=ids,
        instance=INSTANCES,
        protocols=PROTOCOLS,
        session=TIMEOUTS,
        rebalance=TIMEOUTS,
        id_required=st.booleans(),
        knows_skip=st.booleans(),
    )
    def newcomer_joins(
        self,
        instance: str | None,
        protocols: tuple[tuple[str, bytes], ...],
        session: int,
        rebalance: int,
        id_required: bool,
        knows_skip: bool,
    ) -> str:
        new_id = f"m{self.world.tokens}"
        self.instances[new_id] = instance
        self.world.join(
            new_id=new_id,
            instance_id=instance,
            protocols=protocols,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
            id_required=id_required,
            knows_skip=knows_skip,
        )
        return new_id

    @rule(id=ids, protocols=PROTOCOLS, session=TIMEOUTS, rebalance=TIMEOUTS)
    def member_joins_again(
        self, id: str, protocols: tuple[tuple[str, bytes], ...], session: int, rebalance: int
    ) -> None:
        self.world.join(
            id,
            instance_id=self.instances[id],
            protocols=protocols,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
        )

    @rule()
    def all_join_again(self) -> None:
        for member in tuple(self.world.group.members.values()):
            self.world.join(member.id, instance_id=member.instance_id, protocols=member.protocols)

    @rule(id=ids, late=st.booleans())
    def member_syncs(self, id: str, late: bool) -> None:
        self._sync(id, self.world.group.generation - late)

    @rule()
    def all_sync(self) -> None:
        for id in tuple(self.world.group.members):
            self._sync(id, self.world.group.generation)

    def _sync(self, id: str, generation: int) -> None:
        # Every call hands in another assignment; the first of a leader must stay the only one.
        parts = {member: f"{self.world.tokens}-{member}".encode() for member in self.world.group.members}
        token = self.world.sync(id, generation, parts, instance_id=self.instances[id])
        self.syncs[token] = (id, generation)

    @rule(id=ids, late=st.booleans())
    def heartbeat(self, id: str, late: bool) -> None:
        self.world.heartbeat(id, self.world.group.generation - late, self.instances[id])

    @rule(id=ids, generation=st.integers(-1, 5))
    def commit(self, id: str, generation: int) -> None:
        error = self.world.commit(id, generation, self.instances[id])
        if error is OK and generation >= 0:
            assert id in self.world.group.members

    @rule(id=ids, by_instance=st.booleans())
    def leave(self, id: str, by_instance: bool) -> None:
        instance = self.instances[id]
        self.world.leave(("" if by_instance and instance else id, instance))

    @rule(gone=consumes(ids), target=ids)
    def forget(self, gone: str) -> object:
        return multiple() if gone not in self.world.group.members else gone

    @rule(milliseconds=st.sampled_from([1, 100, 999, 1_000, 5_000, 30_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.world.wait(milliseconds)

    @rule(ok=st.sampled_from([True, True, True, False]))
    def the_log_answers(self, ok: bool) -> None:
        if self.world.storing:
            self.world.store(ok)

    @rule()
    def the_broker_restarts(self) -> None:
        before = self.world
        if not before.stored:
            return
        after = before.restarted()
        # Whoever waited has lost the connection; numbers go on, so that ids do not repeat.
        after.tokens = before.tokens
        after.store_at_once = before.store_at_once
        after.stored.append(before.stored[-1])
        self.world, self.syncs = after, {}

    @invariant()
    def assignments_are_those_of_their_generation(self) -> None:
        if not hasattr(self, "world"):
            return
        for token, (id, generation) in tuple(self.syncs.items()):
            reply = self.world.answers.get(token)
            if reply is None:
                continue
            del self.syncs[token]
            assert isinstance(reply, Synced)
            if reply.error is OK:
                given = self.world.assigned[generation].assignments
                # A static member that came back has the part of its predecessor.
                assert reply.assignment == given.get(id, reply.assignment)

    @invariant()
    def whoever_is_told_of_a_generation_is_in_it(self) -> None:
        if not hasattr(self, "world"):
            return
        for reply in self.world.answers.values():
            if isinstance(reply, Joined) and reply.error is OK:
                assert 0 < reply.generation <= self.world.group.generation

    def teardown(self) -> None:
        """Left to itself, a group ends empty, and everybody has had an answer."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.store_at_once = True
        while world.storing:
            world.store()
        for _ in range(20):
            world.wait(60_000)
        assert not world.waiting
        assert not world.deadlines
        assert world.group.state is State.EMPTY


GroupMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_whatever_happens_to_a_group_its_promises_hold = GroupMachine.TestCase
