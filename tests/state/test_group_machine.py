"""A consumer group, rule by rule."""

from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from fanlog.state.groups.model import Answer, Joined, Retire, State, Suspend

from .world import OK, RULES, World, subscription


def test_a_member_alone_leads_and_gets_what_it_assigns() -> None:
    world = World()
    joined = world.joined(world.join(new_id="a"))
    assert (joined.error, joined.generation, joined.leader, joined.protocol) == (OK, 1, "a", "range")
    assert [(each.id, each.metadata) for each in joined.members] == [("a", b"topics")]

    synced = world.synced(world.sync("a", assignments={"a": b"everything"}))
    assert (synced.error, synced.assignment, synced.protocol) == (OK, b"everything", "range")
    assert world.group.state is State.STABLE


def test_a_member_that_must_have_an_id_first_is_given_one() -> None:
    world = World()
    refused = world.joined(world.join(new_id="a", id_required=True))
    assert (refused.error, refused.member_id) == (ErrorCode.member_id_required, "a")
    assert not world.group.members

    assert world.joined(world.join("a", id_required=True)).error is OK


def test_an_id_that_nobody_joins_with_is_forgotten() -> None:
    world = World()
    world.join(new_id="a", id_required=True, session_timeout_ms=5_000)
    world.wait(5_000)
    assert world.joined(world.join("a")).error is ErrorCode.unknown_member_id


def test_an_id_that_was_given_to_somebody_else_cannot_be_used_by_an_instance() -> None:
    world = World()
    world.stable("a", instance_of={"a": "one"})
    world.join(new_id="b", id_required=True)
    refused = world.joined(world.join("b", instance_id="one"))
    assert refused.error is ErrorCode.fenced_instance_id
    assert world.joined(world.join("b", instance_id="two")).error is ErrorCode.unknown_member_id


def test_a_protocol_that_is_named_twice_counts_once() -> None:
    world = World()
    world.stable("a", protocols=(("range", b"1"), ("range", b"2")))
    refused = world.joined(world.join(protocols=(("sticky", b""),)))
    assert refused.error is ErrorCode.inconsistent_group_protocol
    assert world.group.members["a"].metadata("range") == b"1"


def test_a_rebalance_waits_for_an_id_that_was_given_out() -> None:
    world = World()
    world.stable("a")
    world.join(new_id="b", id_required=True)
    again = world.join("a")
    assert again in world.waiting
    world.join("b", id_required=True)
    assert world.joined(again).generation == 2


def test_a_new_group_waits_for_more_members_as_long_as_they_come() -> None:
    world = World(replace(RULES, initial_rebalance_delay_ms=300))
    first = world.join(new_id="a")
    world.wait(200)
    second = world.join(new_id="b")
    world.wait(150)
    assert world.waiting == {first, second}
    world.wait(300)
    assert world.joined(first).generation == world.joined(second).generation == 1


def test_the_first_wait_ends_with_the_rebalance_timeout() -> None:
    world = World(replace(RULES, initial_rebalance_delay_ms=300, members_max=100))
    first = world.join(new_id="a", rebalance_timeout_ms=1_000)
    for _ in range(9):
        world.wait(110)
        world.join(rebalance_timeout_ms=1_000)
    world.wait(20)
    assert world.joined(first).error is OK


def test_only_the_leader_is_told_who_the_members_are() -> None:
    world = World()
    world.stable("a")
    follower = world.join(new_id="b")
    leader = world.join("a")
    assert {each.id for each in world.joined(leader).members} == {"a", "b"}
    assert world.joined(follower).members == ()
    assert world.joined(follower).leader == "a"


def test_a_sync_waits_for_the_leaders_assignment_to_be_stored() -> None:
    world = World()
    world.stable("a")
    world.join(new_id="b")
    world.join("a")
    world.store_at_once = False
    follower = world.sync("b")
    leader = world.sync("a", assignments={"a": b"1", "b": b"2"})
    assert world.waiting == {follower, leader}
    world.store()
    assert world.synced(follower).assignment == b"2"
    assert world.synced(leader).assignment == b"1"


def test_an_assignment_that_cannot_be_stored_is_never_handed_out() -> None:
    world = World(store_at_once=False)
    world.join(new_id="a")
    leader = world.sync("a", assignments={"a": b"1"})
    world.store(ok=False)
    assert world.synced(leader).error is ErrorCode.coordinator_not_available
    assert world.synced(leader).assignment == b""
    assert world.group.state is State.PREPARING


def test_an_assignment_of_a_generation_that_has_passed_changes_nothing() -> None:
    world = World(store_at_once=False)
    world.join(new_id="a")
    leader = world.sync("a", assignments={"a": b"1"})
    world.join(new_id="b")
    assert world.synced(leader).error is ErrorCode.rebalance_in_progress
    world.join("a")
    world.store()
    assert world.group.state is State.COMPLETING
    assert world.group.generation == 2


def test_a_leader_that_asks_twice_assigns_once() -> None:
    world = World(store_at_once=False)
    world.join(new_id="a")
    first = world.sync("a", assignments={"a": b"1"})
    second = world.sync("a", assignments={"a": b"2"})
    assert world.synced(first).error is ErrorCode.rebalance_in_progress
    world.store()
    assert world.synced(second).assignment == b"1"
    assert not world.storing


def test_a_join_that_is_repeated_takes_the_place_of_the_first() -> None:
    world = World()
    world.stable("a", "b")
    first = world.join("a")
    second = world.join("a")
    assert world.joined(first).error is ErrorCode.rebalance_in_progress
    world.join("b")
    assert world.joined(second).error is OK


def test_a_follower_that_joins_again_unchanged_is_told_the_generation_it_is_in() -> None:
    world = World()
    world.stable("a", "b")
    again = world.joined(world.join("b"))
    assert (again.error, again.generation, again.leader) == (OK, 2, "a")
    assert world.group.state is State.STABLE
    assert world.synced(world.sync("b")).assignment == b"part of b"


def test_a_follower_whose_subscription_changed_causes_a_rebalance() -> None:
    world = World()
    world.stable("a", "b")
    assert world.join("b", protocols=(("range", b"other topics"),)) in world.waiting
    assert world.heartbeat("a") is ErrorCode.rebalance_in_progress


def test_a_leader_that_joins_again_causes_a_rebalance() -> None:
    world = World()
    world.stable("a", "b")
    assert world.join("a") in world.waiting
    assert world.group.state is State.PREPARING


def test_an_answer_that_was_lost_is_given_again() -> None:
    world = World()
    world.join(new_id="a")
    again = world.joined(world.join("a"))
    assert (again.generation, [each.id for each in again.members]) == (1, ["a"])


def test_members_that_do_not_join_again_in_time_are_dropped() -> None:
    world = World()
    world.stable("a", "b", session_timeout_ms=60_000, rebalance_timeout_ms=5_000)
    again = world.join("a", session_timeout_ms=60_000, rebalance_timeout_ms=5_000)
    world.wait(4_999)
    assert again in world.waiting
    world.wait(1)
    assert [each.id for each in world.joined(again).members] == ["a"]
    assert world.heartbeat("b") is ErrorCode.unknown_member_id


def test_members_that_never_ask_for_their_assignment_are_dropped() -> None:
    world = World()
    world.join(new_id="a", rebalance_timeout_ms=5_000)
    for _ in range(6):
        world.heartbeat("a")
        world.wait(1_000)
    assert world.group.state is State.EMPTY


def test_a_session_ends_without_a_sign_of_life() -> None:
    world = World()
    world.stable("a", "b")
    for _ in range(3):
        world.wait(5_000)
        error = world.heartbeat("a")
    assert error is ErrorCode.rebalance_in_progress
    again = world.join("a")
    assert [each.id for each in world.joined(again).members] == ["a"]


def test_heartbeats_and_commits_keep_a_session_alive() -> None:
    world = World()
    world.stable("a")
    for _ in range(5):
        world.wait(9_000)
        assert world.heartbeat("a") is OK
        world.wait(9_000)
        assert world.commit("a", 1) is OK


def test_a_member_that_waits_for_others_does_not_time_out() -> None:
    world = World()
    world.stable("a", "b", session_timeout_ms=2_000, rebalance_timeout_ms=30_000)
    waits = world.join("a", session_timeout_ms=2_000, rebalance_timeout_ms=30_000)
    for _ in range(10):
        world.heartbeat("b")
        world.wait(1_500)
    assert waits in world.waiting
    assert "a" in world.group.members


def test_the_protocol_is_chosen_by_vote_among_those_that_all_know() -> None:
    world = World()
    world.join(new_id="a", protocols=(("sticky", b""), ("range", b""), ("mine", b"")))
    world.join(new_id="b", protocols=(("range", b""), ("sticky", b"")))
    world.join(new_id="c", protocols=(("range", b""), ("sticky", b"")))
    world.join("a", protocols=(("sticky", b""), ("range", b""), ("mine", b"")))
    last = world.join("b", protocols=(("range", b""), ("sticky", b"")))
    assert world.joined(last).protocol == "range"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("consumer", (("unknown to the others", b""),)),
        ("consumer", ()),
        ("connect", (("range", b"topics"),)),
        ("", (("range", b"topics"),)),
    ],
)
def test_a_member_that_shares_no_protocol_is_refused(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    world = World()
    world.stable("a")
    refused = world.joined(world.join(protocol_type=protocol_type, protocols=protocols))
    assert refused.error is ErrorCode.inconsistent_group_protocol
    assert world.group.state is State.STABLE


def test_a_sync_for_another_protocol_is_refused() -> None:
    world = World()
    world.join(new_id="a")
    assert world.synced(world.sync("a", protocol="sticky")).error is ErrorCode.inconsistent_group_protocol
    refused = world.sync("a", protocol="range", protocol_type="connect")
    assert world.synced(refused).error is ErrorCode.inconsistent_group_protocol


@pytest.mark.parametrize(
    ("timeout_ms", "fine"), [(999, False), (1_000, True), (60_000, True), (60_001, False)]
)
def test_session_timeouts_have_limits(timeout_ms: int, fine: bool) -> None:
    world = World()
    error = world.joined(world.join(session_timeout_ms=timeout_ms)).error
    assert error is (OK if fine else ErrorCode.invalid_session_timeout)


def test_a_group_has_a_largest_size() -> None:
    world = World(replace(RULES, members_max=2))
    world.stable("a", "b")
    assert world.joined(world.join(id_required=True)).error is ErrorCode.group_max_size_reached
    assert world.joined(world.join()).error is ErrorCode.group_max_size_reached
    assert world.joined(world.join("b")).error is OK


def test_strangers_and_old_generations_are_refused() -> None:
    world = World()
    world.stable("a")
    assert world.heartbeat("x") is ErrorCode.unknown_member_id
    assert world.heartbeat("a", 7) is ErrorCode.illegal_generation
    assert world.synced(world.sync("x")).error is ErrorCode.unknown_member_id
    assert world.synced(world.sync("a", 7)).error is ErrorCode.illegal_generation
    assert world.commit("x", 1) is ErrorCode.unknown_member_id
    assert world.commit("a", 7) is ErrorCode.illegal_generation
    assert world.commit() is ErrorCode.unknown_member_id
    assert world.joined(world.join("x")).error is ErrorCode.unknown_member_id


def test_offsets_are_committed_before_a_rebalance_and_not_before_its_assignment() -> None:
    world = World()
    world.stable("a", "b")
    world.join("a")
    assert world.commit("b", 2) is OK
    world.join("b")
    assert world.commit("b", 3) is ErrorCode.rebalance_in_progress


def test_a_group_without_members_takes_commits_from_outside() -> None:
    assert World().commit() is OK


def test_a_member_that_leaves_makes_the_others_share_anew() -> None:
    world = World()
    world.stable("a", "b")
    assert world.leave("a") == [OK]
    assert world.heartbeat("b") is ErrorCode.rebalance_in_progress
    again = world.joined(world.join("b"))
    assert (again.leader, again.generation) == ("b", 3)


def test_several_members_leave_at_once() -> None:
    world = World()
    world.stable("a", "b", "c")
    assert world.leave("a", "x", "c") == [OK, ErrorCode.unknown_member_id, OK]
    assert world.joined(world.join("b")).generation == 4


def test_a_group_whose_last_member_left_is_empty_and_kept() -> None:
    world = World()
    world.stable("a")
    world.leave("a")
    assert world.group.state is State.EMPTY
    assert world.stored[-1].generation == 2
    assert world.stored[-1].members == []


def test_a_member_that_leaves_while_it_waits_is_told_so() -> None:
    world = World()
    world.stable("a", "b")
    waits = world.join("a")
    world.leave("a")
    assert world.joined(waits).error is ErrorCode.unknown_member_id


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    world = World()
    world.stable("a", "b", instance_of={"a": "one", "b": "two"})
    back = world.joined(world.join(new_id="b2", instance_id="two"))
    assert (back.error, back.member_id, back.generation, back.leader) == (OK, "b2", 2, "a")
    assert world.group.state is State.STABLE
    assert world.synced(world.sync("b2", instance_id="two")).assignment == b"part of b"
    assert {member.id for member in world.stored[-1].members} == {"a", "b2"}


def test_what_a_static_member_was_before_is_fenced() -> None:
    world = World()
    world.stable("a", "b", instance_of={"a": "one", "b": "two"})
    world.join(new_id="b2", instance_id="two")
    fenced = ErrorCode.fenced_instance_id
    assert world.heartbeat("b", instance_id="two") is fenced
    assert world.commit("b", 2, "two") is fenced
    assert world.synced(world.sync("b", instance_id="two")).error is fenced
    assert world.joined(world.join("b", instance_id="two")).error is fenced
    assert world.leave(("b", "two")) == [fenced]


def test_a_static_member_that_waits_is_fenced_by_its_successor() -> None:
    world = World()
    world.stable("a", "b", instance_of={"a": "one", "b": "two"})
    waits = world.join("a", instance_id="one")
    successor = world.join(new_id="a2", instance_id="one")
    assert world.joined(waits).error is ErrorCode.fenced_instance_id
    world.join("b", instance_id="two")
    assert world.joined(successor).leader == "a2"


def test_a_static_leader_that_comes_back_leads_but_does_not_assign() -> None:
    world = World()
    world.stable("a", "b", instance_of={"a": "one"})
    back = world.joined(world.join(new_id="a2", instance_id="one"))
    assert (back.leader, back.skip_assignment) == ("a2", True)
    assert {each.id for each in back.members} == {"a2", "b"}


def test_an_older_static_leader_that_comes_back_does_not_know_that_it_leads() -> None:
    world = World()
    world.stable("a", "b", instance_of={"a": "one"})
    back = world.joined(world.join(new_id="a2", instance_id="one", knows_skip=False))
    assert (back.leader, back.skip_assignment, back.members) == ("a", False, ())


def test_a_static_member_that_owns_other_partitions_by_now_wants_the_same_topics() -> None:
    world = World()
    world.stable("a", instance_of={"a": "one"}, protocols=(("sticky", subscription("t", owned=b"1 2")),))
    back = world.join(new_id="a2", instance_id="one", protocols=(("sticky", subscription("t")),))
    assert world.joined(back).generation == 1


def test_a_static_member_that_wants_other_topics_causes_a_rebalance() -> None:
    world = World()
    world.stable("a", "b", instance_of={"a": "one"}, protocols=(("range", subscription("t")),))
    back = world.join(new_id="a2", instance_id="one", protocols=(("range", subscription("u")),))
    assert back in world.waiting
    assert world.group.state is State.PREPARING


def test_a_static_member_that_comes_back_during_the_assignment_causes_another() -> None:
    world = World()
    world.join(new_id="a", instance_id="one")
    assert world.group.state is State.COMPLETING
    back = world.joined(world.join(new_id="a2", instance_id="one"))
    assert back.generation == 2


def test_a_static_member_has_until_its_session_ends_to_come_back() -> None:
    world = World()
    options = {"session_timeout_ms": 20_000, "rebalance_timeout_ms": 5_000}
    world.stable("a", "b", instance_of={"b": "two"}, **options)
    again = world.join("a", **options)
    world.wait(5_000)
    assert {each.id for each in world.joined(again).members} == {"a", "b"}
    world.sync("a")
    world.wait(14_000)
    assert "b" in world.group.members
    assert world.heartbeat("a") is OK
    world.wait(1_000)
    assert "b" not in world.group.members


def test_a_return_that_cannot_be_stored_is_refused_and_may_be_tried_again() -> None:
    world = World()
    world.stable("a", "b", instance_of={"b": "two"})
    world.store_at_once = False
    back = world.join(new_id="b2", instance_id="two")
    world.store(ok=False)
    assert world.joined(back).error is ErrorCode.coordinator_not_available
    world.store_at_once = True
    assert world.joined(world.join(new_id="b3", instance_id="two")).error is OK


def test_an_operator_removes_a_static_member_by_its_instance() -> None:
    world = World()
    world.stable("a", "b", instance_of={"b": "two"})
    assert world.leave(("", "two"), ("", "three")) == [OK, ErrorCode.unknown_member_id]
    assert "b" not in world.group.members


def test_members_are_as_they_were_after_a_restart() -> None:
    world = World()
    world.stable("a", "b", instance_of={"b": "two"})
    after = world.restarted()
    assert after.group.state is State.STABLE
    assert after.heartbeat("a") is OK
    assert after.synced(after.sync("b", instance_id="two")).assignment == b"part of b"
    after.wait(10_000)
    assert after.group.state is State.EMPTY


def test_a_generation_is_not_used_again_after_a_restart() -> None:
    world = World()
    world.stable("a")
    world.leave("a")
    after = world.restarted()
    assert after.joined(after.join()).generation == 3


def test_a_stopping_broker_lets_nobody_wait() -> None:
    world = World()
    world.stable("a", "b")
    waits = world.join("a")
    effects = world.group.step(Suspend(), world.now)
    [answer] = [effect for effect in effects if isinstance(effect, Answer)]
    assert (answer.token, answer.reply) == (waits, Joined(ErrorCode.not_coordinator, "a"))
    assert not world.group.deadlines


def test_only_an_empty_group_is_retired() -> None:
    world = World()
    world.stable("a")
    world.step(Retire())
    assert world.group.state is State.STABLE
    world.leave("a")
    world.step(Retire())
    assert world.group.state is State.DEAD
    assert world.joined(world.join()).error is ErrorCode.coordinator_not_available
