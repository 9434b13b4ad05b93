"""`fanlog demo`, without a terminal and in small."""

from cli.conftest import run


def test_nothing_acknowledged_is_lost_and_every_check_holds() -> None:
    answer = run("demo", "--records", "1000", "--json", seconds=60)
    assert answer.code == 0, answer.out + answer.err
    document = answer.document
    assert [each["name"] for each in document["checks"] if not each["held"]] == []
    assert document["figures"]["acknowledged"] == 1000
    assert 500 <= document["figures"]["acknowledged_before_crash"] < 1000
