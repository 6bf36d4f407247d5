"""The supervisor's decisions, with a clock and processes of the test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from exporter.sources.supervisor import STARTING, Supervisor
from tests.faults.fake import DEVICES, LIMITS, FakeWorker, Stage

FIRST, SECOND, THIRD = DEVICES


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A source that was not polled yet."""
    made = Stage()
    yield made
    made.close()


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


# ------------------------------------------------------------------------------------ a good course


def test_a_poll(stage: Stage) -> None:
    """A worker is started, opens, is asked, answers: then the poll need not wait any longer."""
    stage.begin()
    assert stage.now + LIMITS.first == stage.source.wait_until()
    assert STARTING == stage.attend().reason
    stage.last.hello()
    assert not stage.attend().answers
    assert DEVICES == tuple(stage.last.answer())
    report = stage.attend()
    assert stage.source.wait_until() is None
    assert report.up
    assert set(DEVICES) == report.answers.keys()
    assert {FIRST: 0, SECOND: 1, THIRD: 2} == report.devices


def test_the_worker_lives_on(stage: Stage) -> None:
    """The next poll asks the same worker."""
    worker = stage.polled()
    stage.now += 10
    stage.begin()
    worker.answer()
    assert stage.attend().up
    assert [worker] == stage.workers


def test_only_the_first_poll_waits_long(stage: Stage) -> None:
    """Later polls wait for a starting worker as long as they have time for."""
    stage.begin()
    stage.now += 10
    stage.begin()
    assert stage.now + LIMITS.patience == stage.source.wait_until()


def test_a_source_that_is_not_there_is_not_waited_for(stage: Stage) -> None:
    """It says so and ends; the first poll ends at once, and the reason is told."""
    stage.begin()
    stage.last.say({"unavailable": ["no library", "install it"]})
    report = stage.attend()
    assert stage.source.wait_until() is None
    assert (False, "no library", "install it") == (report.up, report.reason, report.remedy)
    assert 0 == sum(report.restarts.values())


# ------------------------------------------------------------------------------------ back-off


def test_attempts_grow_rarer(stage: Stage) -> None:
    """A worker that can't start is tried again after 2, 4, 8 … seconds, at most 300."""
    for _ in range(11):
        stage.begin()
        stage.last.die(-6)
        report = stage.attend()
        assert "its worker died (killed by SIGABRT)" == report.reason
        while stage.source.wait_until() is None:
            stage.begin()
            stage.attend(after=1.0)
    waits = [after - before for before, after in zip(stage.times, stage.times[1:], strict=False)]
    assert [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300] == waits
    assert 11 == stage.source.report().restarts["crash"]


def test_attempts_go_on_for_ever(stage: Stage) -> None:
    """After days without a driver the delay is still a number, and the daemon alive."""
    for _ in range(1100):
        stage.begin()
        stage.last.say({"unavailable": ["no driver", "modprobe amdgpu"]})
        stage.attend()
        stage.now += 300
    assert 1100 == len(stage.workers)


def test_remedies() -> None:
    """The kernel's log tells something of sources that ask the driver, of no other."""
    found: dict[str, str] = {}
    for name in ("amdsmi", "rocm_smi", "sysfs", "pod_resources", "simulated"):
        stage = Stage(name=name)
        stage.begin()
        stage.last.die(1)
        found[name] = stage.attend().remedy
        stage.close()
    other = "see `amdgpu-exporter support`"
    driver = f"{other} and the kernel log for amdgpu"
    assert {
        **dict.fromkeys(("amdsmi", "rocm_smi", "sysfs"), driver),
        **dict.fromkeys(("pod_resources", "simulated"), other),
    } == found


def test_a_success_starts_the_back_off_anew(stage: Stage) -> None:
    """Failures long ago don't delay the next attempt."""
    for _ in range(5):
        stage.begin()
        stage.last.die(1)
        stage.attend()
        stage.now += 300
    stage.polled().die(1)
    stage.attend()
    assert stage.times[-1] == stage.now
    stage.begin()
    assert stage.times[-1] == stage.now
    stage.attend(after=2.0)
    assert stage.times[-1] == stage.now


def test_hurry(stage: Stage) -> None:
    """When a device came, no back-off stands in the way."""
    stage.begin()
    stage.last.die(1)
    stage.attend()
    stage.begin()
    assert 1 == len(stage.workers)
    stage.source.hurry()
    stage.begin()
    assert 2 == len(stage.workers)


def test_no_process_can_be_started(stage: Stage) -> None:
    """The reason is told, no descriptor is lost, and it is tried again."""
    before = descriptors()
    stage.refused = OSError(11, "Resource temporarily unavailable")
    stage.begin()
    report = stage.attend()
    assert "could not be started: [Errno 11]" in report.reason
    assert "memory, processes or descriptors" in report.remedy
    assert before == descriptors()
    stage.refused = None
    stage.now += 2
    stage.polled()
    assert stage.source.report().up


# ------------------------------------------------------------------------------------ hangs


def hang(stage: Stage, worker: FakeWorker, address: str = FIRST) -> None:
    """In a new poll, the worker hangs on a device."""
    stage.begin()
    worker.asked()
    worker.start(address)
    stage.attend()
    stage.attend(after=LIMITS.device)


def test_a_hang_costs_one_device(stage: Stage) -> None:
    """The worker is replaced in the same poll, and its replacement reads the others."""
    worker = stage.polled()
    stage.now += 10
    hang(stage, worker)
    assert worker.killed
    assert (stage.source.wait_until() or 0) > stage.now
    stage.last.hello()
    stage.attend()
    assert [SECOND, THIRD] == stage.last.answer()
    report = stage.attend()
    assert report.up
    assert {SECOND, THIRD} == report.answers.keys()
    assert [FIRST] == list(report.unanswered)
    assert f"sysfs: {FIRST} did not answer in time" == report.unanswered[FIRST].detail
    assert 1 == report.restarts["hang"]


def test_a_hang_between_two_devices(stage: Stage) -> None:
    """A worker that stops answering without a device to blame is replaced after a back-off."""
    worker = stage.polled()
    stage.begin()
    stage.attend(after=LIMITS.device)
    assert worker.killed
    assert "its worker stopped answering" == stage.source.report().reason
    assert [worker] == stage.workers
    stage.attend(after=2.0)
    assert 2 == len(stage.workers)


def probe(stage: Stage) -> FakeWorker | None:
    """The probe of a device, opened and asked in a new poll; None if it is not due.

    The worker, which was started last before, reads the other devices.
    """
    main = stage.last
    stage.begin()
    main.answer()
    stage.attend()
    if stage.last is main:
        return None
    stage.last.hello()
    stage.attend()
    return stage.last


def with_a_hang(stage: Stage) -> None:
    """A poll in which the first device hung, and the others were read."""
    hang(stage, stage.polled())
    stage.last.hello()
    stage.attend()
    stage.last.answer()
    assert stage.attend().up


def test_a_probe_asks_for_the_device_alone(stage: Stage) -> None:
    """When it answers, it counts, and from the next poll on the worker reads it again."""
    with_a_hang(stage)
    main = stage.last
    assert probe(stage) is None
    stage.now += 10
    asking = probe(stage)
    assert asking is not None
    assert [FIRST] == asking.answer()
    report = stage.attend()
    assert asking.killed
    assert {FIRST, SECOND, THIRD} == report.answers.keys()
    assert not report.unanswered
    stage.begin()
    assert list(DEVICES) == main.answer()
    assert 1 == sum(stage.source.report().restarts.values())


def test_probes_grow_rarer(stage: Stage) -> None:
    """A device that goes on hanging is probed after 1, 2, 4 … intervals, at most 300 s."""
    with_a_hang(stage)
    main, held = stage.last, stage.now
    waits: list[float] = []
    for _ in range(7):
        while len(stage.workers) == 2 + len(waits):
            stage.begin()
            main.answer()
            stage.attend(after=1.0)
        waits.append(stage.times[-1] - held)
        stage.last.die(1)
        stage.attend()
        held = stage.now
    assert [10, 20, 40, 80, 160, 300, 300] == [wait // 10 * 10 for wait in waits]
    assert not main.killed


def test_a_probe_that_can_not_be_started(stage: Stage) -> None:
    """The device stays left out for the same reason, the worker goes on; no storm of attempts."""
    with_a_hang(stage)
    main = stage.last
    stage.refused = OSError(24, "Too many open files")
    stage.now += 10
    assert probe(stage) is None
    stage.refused = None
    for _ in range(5):
        assert probe(stage) is None
    report = stage.source.report()
    assert report.up
    assert f"sysfs: {FIRST} did not answer in time" == report.unanswered[FIRST].detail
    stage.now += 10
    asking = probe(stage)
    assert asking is not None
    assert not main.killed
    assert [FIRST] == asking.answer()


@pytest.mark.parametrize("how", ["unavailable", "changed", "init", "hang", "nonsense", "death"])
def test_a_failing_probe_is_not_tried_again_at_once(how: str, stage: Stage) -> None:
    """However it fails, the device is held for longer, and the other devices are read."""
    with_a_hang(stage)
    main = stage.last
    stage.now += 10
    if how in ("unavailable", "init"):
        stage.begin()
        main.answer()
        stage.attend()
        assert 3 == len(stage.workers)
        if how == "unavailable":
            stage.last.say({"unavailable": ["sees no GPU", "look for one"]})
        else:
            stage.now += LIMITS.init
    else:
        asking = probe(stage)
        assert asking is not None
        asking.asked()
        if how == "hang":
            asking.start(FIRST)
            stage.attend()
            stage.now += LIMITS.device
        elif how == "changed":
            asking.say({"changed": True})
        elif how == "death":
            asking.die(-11)
        else:
            asking.say(b"nonsense")
    for _ in range(5):
        stage.attend()
    assert 3 == len(stage.workers)
    assert not main.killed
    stage.begin()
    assert [SECOND, THIRD] == main.answer()
    assert stage.attend().up


def test_a_device_that_hangs_again_soon_is_held_for_longer(stage: Stage) -> None:
    """A device that hangs whenever the worker asks, but not when a probe does, is no storm."""
    with_a_hang(stage)
    main = stage.last
    stage.now += 10
    asking = probe(stage)
    assert asking is not None
    asking.answer()
    stage.attend()
    hang(stage, main)
    stage.last.hello()
    stage.attend()
    stage.last.answer()
    stage.attend(after=10.0)
    assert probe(stage) is None
    stage.now += 10
    assert probe(stage) is not None


def test_a_device_that_hangs_again_much_later_is_not(stage: Stage) -> None:
    """What happened long ago is forgotten."""
    with_a_hang(stage)
    main = stage.last
    stage.now += 10
    asking = probe(stage)
    assert asking is not None
    asking.answer()
    stage.attend()
    stage.now += 300
    hang(stage, main)
    stage.last.hello()
    stage.attend()
    stage.last.answer()
    stage.attend()
    stage.now += 10
    assert probe(stage) is not None


# ------------------------------------------------------------------------------------ state D


def test_an_unkillable_worker_is_abandoned(stage: Stage) -> None:
    """It is counted, its device is left alone until it is gone, and the others are read."""
    worker = stage.polled()
    worker.immortal = True
    hang(stage, worker)
    assert 0 == stage.source.report().abandoned
    main = stage.last
    main.hello()
    stage.attend(after=LIMITS.kill)
    main.answer()
    for _ in range(10):
        stage.now += 300
        assert 1 == stage.attend().abandoned
        assert probe(stage) is None
    worker.die(-9)
    stage.now += 300
    asking = probe(stage)
    assert asking is not None
    assert 0 == stage.source.report().abandoned
    assert [FIRST] == asking.answer()
    assert FIRST in stage.attend().answers


def test_every_device_in_state_d(stage: Stage) -> None:
    """One process per device is left behind, no more, and the worker goes on."""
    main = stage.polled()
    for address in DEVICES:
        main.immortal = True
        stage.now += 10
        hang(stage, main, address)
        main = stage.last
        main.hello()
        stage.attend()
        main.answer()
        assert stage.attend(after=LIMITS.kill).up
    for _ in range(10):
        stage.now += 300
        stage.begin()
        assert [] == main.answer()
        report = stage.attend()
        assert report.up
        assert set(DEVICES) == report.unanswered.keys()
    assert (3, 4) == (report.abandoned, len(stage.workers))


def test_unkillable_workers_do_not_pile_up(stage: Stage) -> None:
    """Where none can even start, three are left behind, and a fourth is not started."""
    for _ in range(10):
        stage.begin()
        stage.last.immortal = True
        stage.attend(after=LIMITS.init)
        stage.attend(after=LIMITS.kill)
        stage.now += 300
    stage.begin()
    report = stage.attend()
    assert (3, 3) == (report.abandoned, len(stage.workers))
    assert "3 of its workers can't be killed (state D)" == report.reason
    stage.workers[0].die(-9)
    stage.begin()
    assert 4 == len(stage.workers)
    assert 2 == stage.attend().abandoned


def test_stop_does_not_wait_for_the_unkillable(stage: Stage) -> None:
    """Everything is sent SIGKILL, nothing is waited for without an end, nothing starts again."""
    worker = stage.polled()
    worker.immortal = True
    supervisor = Supervisor([stage.source])
    supervisor.stop()
    assert worker.killed
    stage.begin()
    assert [worker] == stage.workers


# ------------------------------------------------------------------------------------ nonsense


@pytest.mark.parametrize(
    "nonsense",
    [
        b"Failed to open file",
        b"[]",
        b"7",
        b"{}",
        b'{"wow": 1}',
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"start": "0000:99:00.0"}',
        b'{"start": ["0000:01:00.0"]}',
        b'{"hello": {"node": {}, "devices": []}}',
        b'{"unavailable": ["a", "b"]}',
        b'{"device": "0000:01:00.0"}',
        b'{"device": "0000:01:00.0", "time": "noon"}',
        b'{"device": "0000:01:00.0", "time": NaN}',
        b'{"device": "0000:01:00.0", "time": 1, "readings": []}',
        b'{"device": "0000:01:00.0", "time": 1, "readings": {"": []}}',
        b'{"device": "0000:01:00.0", "time": 1, "readings": {"": {"power/0": 7}}}',
        b'{"device": "0000:01:00.0", "time": 1, "readings": {"": {"power/0": {"watts": null}}}}',
        b'{"device": "0000:01:00.0", "time": 1, "readings": {"": {"power/0": {"watts": true}}}}',
        b'{"device": "0000:01:00.0", "time": 1, "readings": {"": {"power/0": {"watts": NaN}}}}',
        b'{"device": "0000:01:00.0", "time": 1, "readings": {"": {"power/0": {"w": Infinity}}}}',
        b'{"device": "0000:01:00.0", "time": 1, "readings": {"": {"power/0": {"w": ["x", ""]}}}}',
        b'{"device": "0000:01:00.0", "time": 1, "durations": {"power": "long"}}',
        b'{"device": "0000:01:00.0", "time": 1, "errors": ["power"]}',
    ],
)
def test_nonsense(nonsense: bytes, stage: Stage) -> None:
    """A worker that answers nonsense is replaced, and nothing of it is believed."""
    worker = stage.opened()
    worker.say(nonsense)
    report = stage.attend()
    assert worker.killed
    assert not report.answers
    assert 1 == report.restarts["protocol"]
    assert "it answered nonsense" in report.reason


@pytest.mark.parametrize(
    "nonsense",
    [
        b'{"start": "0000:01:00.0"}',
        b'{"end": 1}',
        b'{"changed": true}',
        b'{"hello": []}',
        b'{"hello": {"node": {}}}',
        b'{"hello": {"node": [], "devices": []}}',
        b'{"hello": {"node": {}, "devices": [1]}}',
        b'{"hello": {"node": {}, "devices": [["0000:01:00.0", "first"]]}}',
        b'{"unavailable": "a"}',
        b'{"unavailable": ["a"]}',
    ],
)
def test_nonsense_instead_of_a_greeting(nonsense: bytes, stage: Stage) -> None:
    """Nothing but a greeting or an excuse comes first."""
    stage.begin()
    stage.last.say(nonsense)
    assert 1 == stage.attend().restarts["protocol"]
    assert stage.workers[0].killed


def test_nonsense_about_a_device(stage: Stage) -> None:
    """What was being read is to blame, and left out."""
    worker = stage.opened()
    worker.start(SECOND)
    worker.say(b"nonsense")
    stage.attend()
    stage.last.hello()
    stage.attend()
    assert [FIRST, THIRD] == stage.last.answer()


def test_an_answer_without_an_end(stage: Stage) -> None:
    """It is cut off before it fills the memory."""
    worker = stage.opened()
    for _ in range(400):
        if worker.killed:
            break
        os.write(worker._reply, b"x" * (1 << 16))
        stage.attend()
    assert worker.killed
    assert 1 == stage.source.report().restarts["protocol"]


def test_answers_without_an_end(stage: Stage) -> None:
    """A worker that never comes to an end is replaced, though it goes on answering."""
    worker = stage.opened()
    for _ in range(20):
        if worker.killed:
            break
        worker.read(FIRST)
        stage.attend(after=LIMITS.device * 0.9)
    assert worker.killed
    assert 1 == stage.source.report().restarts["hang"]


# ------------------------------------------------------------------------------------ two polls


def test_late_answers_count_for_the_next_poll(stage: Stage) -> None:
    """A slow worker's answers are not lost, and the devices left over are asked for."""
    worker = stage.opened()
    request = worker.asked()
    worker.read(FIRST)
    assert {FIRST} == stage.attend().answers.keys()
    stage.begin()
    worker.read(SECOND)
    worker.read(THIRD)
    worker.end(request)
    report = stage.attend()
    assert report.up
    assert {SECOND, THIRD} == report.answers.keys()
    assert not report.unanswered
    assert stage.source.wait_until() is not None
    assert [FIRST] == worker.answer()
    assert set(DEVICES) == stage.attend().answers.keys()
    assert stage.source.wait_until() is None


def test_a_device_that_is_never_reached(stage: Stage) -> None:
    """Once is a busy moment, twice in a row is told."""
    worker = stage.opened()
    worker.asked()
    worker.read(FIRST)
    worker.read(SECOND)
    assert not stage.attend().unanswered
    stage.begin()
    worker.read(FIRST)
    report = stage.attend()
    assert [THIRD] == list(report.unanswered)
    assert "sysfs: it was not reached in time, twice in a row" == report.unanswered[THIRD].detail


def test_a_slow_worker_is_up(stage: Stage) -> None:
    """A poll in which it still answers the one before is no outage."""
    worker = stage.opened()
    worker.asked()
    for address in DEVICES:
        worker.read(address)
        report = stage.attend(after=1.0)
        assert report.up
        stage.begin()
    assert [worker] == stage.workers


def test_a_storm_of_replacements_ends_with_the_poll(stage: Stage) -> None:
    """Devices that change all the time cost four workers a poll, and the poll ends."""
    stage.begin()
    for _ in range(4):
        stage.last.hello()
        stage.attend()
        stage.last.asked()
        stage.last.say({"changed": True})
        stage.attend()
    stage.last.hello()
    stage.attend()
    assert None is stage.last.asked()
    assert stage.source.wait_until() is None
    assert 4 == stage.source.report().restarts["devices_changed"]
    stage.begin()
    assert list(DEVICES) == stage.last.answer()


# ------------------------------------------------------------------------------------ resting


def test_pause_and_resume(stage: Stage) -> None:
    """A source that rests has no process, and starts at once when it is wanted."""
    worker = stage.polled()
    stage.source.pause()
    assert worker.killed
    for _ in range(3):
        stage.now += 10
        stage.begin()
        report = stage.attend()
        assert stage.source.wait_until() is None
        assert (True, False, "") == (report.paused, report.up, report.reason)
        assert not report.unanswered
    assert [worker] == stage.workers
    stage.source.resume()
    stage.begin()
    assert 2 == len(stage.workers)


def test_resume_while_the_source_fails(stage: Stage) -> None:
    """Neither rest nor work shortens the list of failures to come: it just tries at once."""
    stage.begin()
    stage.last.die(1)
    stage.attend()
    stage.source.pause()
    stage.source.resume()
    stage.begin()
    assert 2 == len(stage.workers)


# ------------------------------------------------------------------------------------ pipes


def test_a_request_that_nobody_reads(stage: Stage) -> None:
    """A request larger than the pipe does not hold up the daemon; the worker is found to hang."""
    stage.source.readers = tuple(f"reader/{number}" for number in range(100_000))
    worker = stage.opened()
    assert 1 == stage.attend(after=LIMITS.device).restarts["hang"]
    assert worker.killed


def test_a_worker_that_is_gone_when_it_is_asked(stage: Stage) -> None:
    """It died between two polls: that is found out in the next one."""
    stage.polled().die(-11)
    stage.begin()
    report = stage.attend()
    assert "its worker died (killed by SIGSEGV)" == report.reason
    assert 1 == report.restarts["crash"]


def test_a_pipe_closed_by_a_living_worker(stage: Stage) -> None:
    """Nothing can come from it any more."""
    worker = stage.polled()
    os.close(worker._reply)
    worker._reply = os.dup(worker._stderr)
    stage.begin()
    assert "its worker died (it closed its pipe)" == stage.attend().reason
    assert worker.killed


def test_last_words(stage: Stage) -> None:
    """Of a flood on standard error the end is kept, on one line, and nothing blocks."""
    worker = stage.polled()
    for _ in range(40):
        worker.complain(b"chatter " * 4096)
        stage.attend()
    worker.complain("\nterminate called…\n  Error 8\n".encode())
    worker.die(-6)
    stage.begin()
    report = stage.attend()
    assert "its worker died (killed by SIGABRT)" == report.reason
    assert report.remedy.endswith("chatter terminate called… Error 8")
    assert len(report.remedy) < 500


def test_closed_standard_error(stage: Stage) -> None:
    """A worker may close it; the daemon does not spin on a pipe at its end."""
    worker = stage.polled()
    os.close(worker._stderr)
    worker._stderr = os.dup(worker._reply)
    before = len(stage.source.descriptors())
    stage.attend()
    assert before - 1 == len(stage.source.descriptors())
    stage.begin()
    worker.answer()
    assert stage.attend().up


def test_no_descriptor_is_lost(stage: Stage) -> None:
    """However workers end, the daemon's descriptors don't grow."""
    before = descriptors()
    for number in range(60):
        stage.begin()
        if number % 3:
            stage.last.hello()
            stage.attend()
        if number % 2:
            stage.last.die(1)
        else:
            stage.last.say(b"nonsense")
        stage.attend()
        stage.now += 300
    stage.source.pause()
    assert 60 <= len(stage.workers)
    assert before == descriptors()


def test_limits(stage: Stage) -> None:
    """What depends on the interval, for the shortest, the default and a long one."""
    found = [replace(LIMITS, interval=interval) for interval in (1.0, 5.0, 60.0)]
    assert [1.0, 2.0, 10.0] == [limits.device for limits in found]
    assert [1.6, 8.0, 96.0] == [limits.cycle for limits in found]
    assert [0.8, 4.0, 48.0] == [limits.patience for limits in found]
