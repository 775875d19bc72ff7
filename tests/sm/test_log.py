"""The log of the subnet manager, and its stream that may fail."""

from __future__ import annotations

import io

import pytest

from weft.sm.events import Event, Log, some


class FullDisk(io.StringIO):
    """A stream that refuses writes while it is full."""

    is_full = False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_lost_lines_are_counted_and_reported_once(capsys):
    stream = FullDisk()
    log = Log(stream, clock=lambda: 0.5)
    log.say(Event.STARTED, "here")
    for lost in (2, 1):
        stream.is_full = True
        for number in range(lost):
            log.say(Event.TRAP, f"lost {number}")
        stream.is_full = False
        log.say(Event.STOPPED, "now")
        log.say(Event.STOPPED, "again")
        assert capsys.readouterr().err.count("NOT_WRITTEN the log: No space left on device") == 1
        lines = {2: "2 lines", 1: "1 line"}[lost]
        assert f"\n\n{log.recent[-1][:23]} WRITTEN_AGAIN the log: {lines} missing here\n" in stream.getvalue()
    assert stream.getvalue().count("WRITTEN_AGAIN") == 2
    assert (log.counts["TRAP"], log.counts["NOT_WRITTEN"], log.counts["STOPPED"]) == (3, 2, 4)
    assert log.recent[0].endswith(".500 STARTED here")


def test_a_reader_that_has_ended_ends_the_log():
    stream = FullDisk()
    stream.write = lambda text: (_ for _ in ()).throw(BrokenPipeError())
    with pytest.raises(BrokenPipeError):
        Log(stream).say(Event.STARTED, "here")


def test_the_last_200_lines_are_kept_and_a_repeated_one_is_logged_once():
    log = Log(io.StringIO())
    for number in range(201):
        log.say_once(Event.TRAP, str(number))
        log.say_once(Event.TRAP, str(number))
    log.say_once(Event.QOS, "200")
    assert (len(log.recent), log.counts["TRAP"], log.counts["QOS"]) == (200, 201, 1)


@pytest.mark.parametrize(
    ("count", "text"), [(1, "0"), (4, "0; 1; 2; 3"), (5, "0; 1; 2; 3 and 1 more"), (1004, "0; 1; 2; 3 and 1,000 more")]
)
def test_four_of_many_lines_are_joined(count, text):
    assert some([str(number) for number in range(count)]) == text
