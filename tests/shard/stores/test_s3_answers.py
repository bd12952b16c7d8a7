"""What is made of an answer of which one bit was turned over on the way: never a bug, and never a false certainty."""

import pytest

from groundplane.errors import GroundplaneError, OutcomeUnknown, Unavailable
from groundplane_shard.log.operations import Absent, Listed, PreconditionFailed
from groundplane_shard.stores.s3 import answers
from groundplane_shard.stores.s3.requests import Answer

DECLARATION = b'<?xml version="1.0" encoding="UTF-8"?>\n'
NOT_FOUND = DECLARATION + b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>"
LIST = (
    DECLARATION + b"<ListBucketResult><KeyCount>2</KeyCount><IsTruncated>false</IsTruncated>"
    b"<Contents><Key>log/1</Key></Contents><Contents><Key>log/2</Key></Contents></ListBucketResult>"
)


def outcome(parse, *arguments):
    """Return what `parse` returns, or the error that it raises if that is one of ours."""
    try:
        return parse(*arguments)
    except GroundplaneError as error:
        return error


def flipped(status, body):
    """Return an answer for every bit of `body`, that bit turned over."""
    for place in range(8 * len(body)):
        damaged = bytearray(body)
        damaged[place // 8] ^= 1 << place % 8
        yield Answer(status=status, headers={"etag": '"e"'}, body=bytes(damaged))


@pytest.mark.parametrize(
    ("parse", "certain"),
    [
        pytest.param(lambda answer: answers.try_parse_found(answer, "x"), Absent, id="read"),
        pytest.param(lambda answer: answers.parse_written(answer, "x"), PreconditionFailed, id="write"),
        pytest.param(lambda answer: answers.check_deleted(answer, "x"), type(None), id="delete"),
    ],
)
def test_a_flipped_absence_is_that_absence_or_no_answer(parse, certain):
    """The encoding that a page declares may come to be one that no parser knows: that ended the whole process once."""
    kinds = {type(outcome(parse, answer)) for answer in flipped(404, NOT_FOUND)}

    assert kinds == {certain, Unavailable}


def test_a_flipped_list_is_a_list_or_no_answer():
    """What a list leaves out or adds is no harm: nothing is concluded from a key that a list does not name."""
    kinds = {type(outcome(answers.parse_listed, answer, "log/", "")) for answer in flipped(200, LIST)}

    assert kinds == {Listed, Unavailable}


def test_a_flipped_failure_of_a_write_stays_open():
    """Nothing in a damaged page may make it certain that a write was not done."""
    kinds = {type(outcome(answers.parse_written, answer, "x")) for answer in flipped(500, NOT_FOUND)}

    assert kinds == {OutcomeUnknown}
