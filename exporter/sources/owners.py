"""Who holds VRAM: the processes that KFD and DRM tell of, each counted once, and who they are.

KFD tells by process and device (`/sys/class/kfd/kfd/proc/PID/vram_GPUID`), DRM by client
(`/proc/PID/fdinfo`, Documentation/gpu/drm-usage-stats.rst). A process that uses both is told of by
both, in part or in whole, so the larger of the two counts.

KFD is read at every poll. To look through the descriptors of all processes is dear, and may wait
for a lock of a process or of the driver, so it happens on the slow clock and beside the poll; in
between, what DRM knew beyond KFD goes on being added.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from exporter.sources import slurm
from exporter.sources.aside import Aside
from exporter.sources.cgroup import Membership, job_of_environment, membership
from exporter.sources.files import Files, absent_for, read_text
from exporter.sources.guard import counter, label
from exporter.sources.session import ASK_AGAIN, POLL, SLOW, DeviceKey, Memo
from exporter.values import NO_ANSWER, NOT_PERMITTED, NOT_SUPPORTED, Absent, Value

_KFD = "/sys/class/kfd/kfd"
SHARED = "shared"
"""The partition of what belongs to a partitioned device, but to none of its partitions."""
SHOWN = 16
"""Processes of a device that are told of by name."""
RUNNING, ZOMBIE, GONE, HIDDEN, OTHER_NAMESPACE = (
    "running",
    "zombie",
    "gone",
    "hidden",
    "other_namespace",
)
ENDED = frozenset({ZOMBIE, GONE})
"""The states of a process that has ended and holds memory all the same."""
RIGHTS = "needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
"""What it takes to see the descriptors and the environment of other users' processes."""

_QUIET = 512
"""KFD's files that held nothing when last read, of which so many are read in a poll, in turn. With
64 partitions every process has 64 of them, and holds memory on one or two."""
_PROCESSES, _DESCRIPTORS = 8192, 32768
"""How much one look through the descriptors takes in; the next one goes on from there."""
_TICKS = 100
"""Of the clock in /proc/PID/stat, per second: USER_HZ, the same on all of Linux's platforms."""
_INITIAL_NAMESPACE = "pid:[4026531836]"
_PASSWD = "/etc/passwd"  # noqa: S105  # no secret: names and numbers of users
_LOGS = "/var/log/containers"
_RENDER_NODE = re.compile(r"/dev/dri/renderD(\d+)")
_LOG = re.compile(r"([^_]+)_([^_]+)_(.+)-([0-9a-f]{64})\.log")
_MOST = 1 << 50
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

Holdings = Mapping[DeviceKey, Mapping[int, int]]
"""Bytes by device or partition, and by process."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that holds VRAM of one device or partition.

    Attributes:
        vram: bytes.
        started: seconds after boot; with the pid it tells a process from a later one of the same
            number. None where the process can't be seen.
        state: running, zombie (it ended, and its parent has not noticed), gone (it ended, and KFD
            still keeps its memory), hidden (/proc does not show it), or other_namespace (the
            exporter's /proc has other numbers than KFD).
    """

    pid: int
    vram: int
    started: float | None
    state: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is; what is not known is empty, or absent where a right is missing.

    Attributes:
        command: its short name, never its arguments.
        in_pod: its control group is that of a Kubernetes pod.
        pod, namespace, container: where the node's own log files name them.
    """

    command: str = ""
    user: str = ""
    container_id: str = ""
    in_pod: bool = False
    pod: str = ""
    namespace: str = ""
    container: str = ""
    job_id: str | Absent = ""


@dataclass(frozen=True, slots=True)
class _Process:
    """What /proc/PID/stat tells."""

    command: str
    state: str
    parent: int
    started: float


@dataclass(frozen=True, slots=True)
class _Client:
    """A DRM client, as one descriptor shows it."""

    place: DeviceKey
    number: str
    vram: int


@dataclass(slots=True)
class _Look:
    """What one look through the descriptors found.

    Attributes:
        clients: by process; those that this look did not reach as the look before found them.
        refused: a process's descriptors may not be seen.
        reached: the last process, where the look ended early.
    """

    clients: dict[int, tuple[_Client, ...]] = field(default_factory=dict)
    refused: bool = False
    reached: int = 0


def _parse_stat(told: str | Absent) -> _Process | None:
    if isinstance(told, Absent):
        return None
    before, _, after = told.rpartition(")")  # the name may have brackets and spaces in it
    parts = after.split()
    try:
        return _Process(before.partition("(")[2], parts[0], int(parts[1]), int(parts[19]) / _TICKS)
    except (IndexError, ValueError):
        return None


class Kfd:
    """KFD's accounts of memory, read once per poll.

    Args:
        gpu_ids: the devices to read of.
    """

    def __init__(self, files: Files, gpu_ids: Collection[int]) -> None:
        self._files = files
        self._names = {f"vram_{gpu_id}": gpu_id for gpu_id in gpu_ids}
        self._held: dict[int, dict[int, Value]] = {}
        self._turn = 0

    def read(self) -> Mapping[int, Mapping[int, Value]]:
        """By process and device; what is not read in this poll as it was last read."""
        before, self._held = self._held, {}
        quiet: list[tuple[int, int]] = []
        for name in self._list(f"{_KFD}/proc"):
            if not name.isdigit():
                continue
            pid = int(name)
            known = before.get(pid)
            if not known:
                known = {
                    self._names[file]: -1
                    for file in self._list(f"{_KFD}/proc/{pid}")
                    if file in self._names
                }
            self._held[pid] = known
            for gpu_id, held in list(known.items()):
                if held == 0:
                    quiet.append((pid, gpu_id))
                else:
                    self._read(pid, gpu_id)
        first = self._turn if len(quiet) > _QUIET else 0
        for pid, gpu_id in (quiet[first:] + quiet[:first])[:_QUIET]:
            self._read(pid, gpu_id)
        self._turn = (first + _QUIET) % max(len(quiet), 1)
        return self._held

    def _read(self, pid: int, gpu_id: int) -> None:
        told = read_text(self._files, f"{_KFD}/proc/{pid}/vram_{gpu_id}")
        if isinstance(told, Absent) and told.reason != NOT_PERMITTED:
            # It has ended, and its number may be another's by now, with other files.
            self._held[pid].pop(gpu_id, None)
        else:
            self._held[pid][gpu_id] = counter(told, bits=64)

    def _list(self, path: str) -> Sequence[str]:
        try:
            return self._files.list(path)
        except OSError:
            return ()


class Descriptors:
    """Looks through the descriptors of all processes for render nodes.

    Args:
        minors: the render nodes, and the device or partition behind each.
        addresses: the devices, each with whether it is partitioned.
    """

    def __init__(
        self, files: Files, minors: Mapping[int, DeviceKey], addresses: Mapping[str, bool]
    ) -> None:
        self._files = files
        self._minors = minors
        self._addresses = addresses

    def look(self, before: _Look, first: Collection[int]) -> _Look:
        """One look, at the processes in `first` before all others."""
        try:
            listed = sorted(int(name) for name in self._files.list("/proc") if name.isdigit())
        except OSError:
            return _Look()
        present = set(listed)
        found = _Look({pid: kept for pid, kept in before.clients.items() if pid in present})
        urgent = sorted(present & {*first, *before.clients})
        rest = [pid for pid in listed if pid not in set(urgent)]
        turn = [pid for pid in rest if pid > before.reached]
        turn += [pid for pid in rest if pid <= before.reached]
        descriptors = 0
        for count, pid in enumerate((*urgent, *turn), 1):
            try:
                names = self._files.list(f"/proc/{pid}/fd")
                clients = [self._client(pid, name) for name in names[:_DESCRIPTORS]]
            except OSError as error:
                refused = absent_for(error, "").reason == NOT_PERMITTED
                found.refused = found.refused or refused
                found.clients.pop(pid, None)
                continue
            found.clients[pid] = tuple(client for client in clients if client is not None)
            if not found.clients[pid]:
                del found.clients[pid]
            descriptors += len(names)
            if count >= _PROCESSES or descriptors >= _DESCRIPTORS:
                found.reached = pid
                break
        return found

    def _client(self, pid: int, descriptor: str) -> _Client | None:
        """The DRM client behind a descriptor; None if it is something else.

        Raises:
            OSError: with EACCES or EPERM, if it may not be seen.
        """
        try:
            opened = _RENDER_NODE.fullmatch(self._files.link(f"/proc/{pid}/fd/{descriptor}"))
            if opened is None:
                return None
            told = self._files.read(f"/proc/{pid}/fdinfo/{descriptor}")
        except OSError as error:
            if absent_for(error, "").reason == NOT_PERMITTED:
                raise
            return None  # it was closed meanwhile
        lines = dict(line.partition(":")[::2] for line in told.splitlines())
        client = lines.get("drm-client-id", "").strip()
        place = self._place(lines.get("drm-pdev", "").strip().lower(), int(opened.group(1)))
        if not client or place is None:
            return None
        for name in ("drm-resident-vram", "drm-memory-vram"):
            if name in lines:
                return _Client(place, client, _amount(lines[name]))
        return None

    def _place(self, address: str, minor: int) -> DeviceKey | None:
        place = self._minors.get(minor)
        if not address or (place is not None and place.address == address):
            return place  # partitions other than the first have no PCI device of their own
        if address not in self._addresses:
            return None
        return DeviceKey(address, SHARED if self._addresses[address] else None)


def _amount(told: str) -> int:
    """`1024 KiB` in bytes; what can't be true is nothing."""
    amount, _, unit = told.strip().partition(" ")
    value = counter(amount, bits=64)
    size = 0 if isinstance(value, Absent) else int(value) * _UNITS.get(unit.strip(), 0)
    return size if size <= _MOST else 0


class Owners:
    """All that the node's files tell of the processes that hold VRAM.

    Args:
        kfd: by KFD's id of a device, the device or partition.
        minors, addresses: as for `Descriptors`.
        own: the exporter's own processes; they and what they started are no owners.
        memo: has the time of the poll.
    """

    def __init__(
        self,
        files: Files,
        memo: Memo,
        *,
        kfd: Mapping[int, DeviceKey],
        minors: Mapping[int, DeviceKey],
        addresses: Mapping[str, bool],
        own: Collection[int] = (),
    ) -> None:
        self._files = files
        self._memo = memo
        self._places = kfd
        self._minors = minors
        self._kfd = Kfd(files, kfd.keys())
        self._descriptors = Descriptors(files, minors, addresses)
        self._own = frozenset(own) - {0, 1}
        self._looking: Aside[_Look] = Aside()
        self._look: _Look | None = None
        self._look_due = -1.0
        self._beyond: dict[tuple[DeviceKey, int], tuple[float | None, int]] = {}
        self._asking: Aside[dict[tuple[int, float], str | Absent]] = Aside()
        self._jobs: dict[tuple[int, float], str | Absent] = {}
        self._known: dict[tuple[int, float], tuple[Identity, bool]] = {}

    # ------------------------------------------------------------------ what a poll tells

    def held(self, gpu_id: int) -> Value:
        """What all compute processes hold of one of KFD's devices, by KFD alone."""
        sums: dict[int, Value] | Absent = self._memo.get("held", POLL, self._sum)
        return sums if isinstance(sums, Absent) else sums.get(gpu_id, 0)

    def of(self, key: DeviceKey) -> tuple[Owner, ...]:
        """The owners of a device or partition, those that hold most first."""
        return self._owners().get(key, ())

    def shown(self, address: str) -> frozenset[int]:
        """The `SHOWN` processes that hold most of a device, all its partitions together."""
        ranks: Mapping[str, frozenset[int]] = self._memo.get("shown", POLL, self._rank)
        return ranks.get(address, frozenset())

    def identity(self, owner: Owner) -> Identity:
        """Who an owner is; read once for each process, the environment of those shown alone."""
        if owner.started is None:
            return Identity()
        identity, _ = self._recall(owner.pid, owner.started)
        if identity.container_id:
            pods: Mapping[str, Identity] = self._memo.get(_LOGS, SLOW, self._pods)
            named = pods.get(identity.container_id, identity)
            identity = replace(
                identity, namespace=named.namespace, pod=named.pod, container=named.container
            )
        if identity.job_id or owner.state != RUNNING:
            return identity
        self._memo.get("jobs", POLL, self._read_jobs)
        job = self._jobs.get((owner.pid, owner.started), "")
        if job == "" and self._asking.busy:
            job = Absent(NO_ANSWER, "/proc/PID/environ: reading one of them hangs")
        return replace(identity, job_id=job)

    def jobs(self, key: DeviceKey) -> Mapping[str, str] | Absent:
        """The batch jobs that the node's files say hold a device, each with its user."""
        told: slurm.Jobs | Absent = self._memo.get("slurm", SLOW, self._slurm_jobs)
        return told if isinstance(told, Absent) else told.get(key, {})

    def _slurm_jobs(self) -> slurm.Jobs | Absent:
        told = slurm.jobs(self._files, self._minors)
        if isinstance(told, Absent):
            return told
        return {
            key: {job: label(self._name(uid)) for job, uid in by_job.items()}
            for key, by_job in told.items()
        }

    def clients(self, key: DeviceKey) -> int | Absent:
        """How many DRM clients have the device open, or why that is not known."""
        self._owners()
        if self._elsewhere():
            return Absent(
                NOT_SUPPORTED,
                "/proc: the exporter runs in a pid namespace of its own, so that processes have "
                "other numbers there; run it in the host's (hostPID, --pid=host)",
            )
        if self._looking.busy:
            return Absent(NO_ANSWER, "/proc/PID/fdinfo: looking through it takes long, or hangs")
        if self._look is None or self._look.refused:
            return Absent(NOT_PERMITTED, f"/proc/PID/fd of other users: {RIGHTS}")
        return len(
            {c.number for found in self._look.clients.values() for c in found if c.place == key}
        )

    # ------------------------------------------------------------------ memory

    def _accounts(self) -> Mapping[int, Mapping[int, Value]]:
        return self._memo.get("accounts", POLL, self._kfd.read)

    def _sum(self) -> dict[int, Value] | Absent:
        present = read_text(self._files, f"{_KFD}/topology/generation_id")
        if isinstance(present, Absent):
            return Absent(NOT_SUPPORTED, f"{_KFD}: no KFD")
        sums: dict[int, Value] = {}
        for by_device in self._accounts().values():
            for gpu_id, held in by_device.items():
                before = sums.get(gpu_id, 0)
                if isinstance(held, Absent) or isinstance(before, (Absent, str)):
                    sums[gpu_id] = before if isinstance(before, Absent) else held
                elif not isinstance(held, str):
                    sums[gpu_id] = before + int(held)
        return sums

    def _owners(self) -> Mapping[DeviceKey, tuple[Owner, ...]]:
        return self._memo.get("owners", POLL, self._find)

    def _find(self) -> dict[DeviceKey, tuple[Owner, ...]]:
        held: dict[DeviceKey, dict[int, int]] = {}
        for pid, by_device in self._accounts().items():
            for gpu_id, amount in by_device.items():
                if isinstance(amount, int) and amount > 0:
                    of_place = held.setdefault(self._places[gpu_id], {})
                    of_place[pid] = of_place.get(pid, 0) + amount
        if not self._elsewhere():
            self._look_through(held)
            for (place, pid), (started, beyond) in self._beyond.items():
                process = self._process(pid)
                if process is not None and process.started == started:
                    of_place = held.setdefault(place, {})
                    of_place[pid] = of_place.get(pid, 0) + beyond
        found = {
            place: tuple(
                sorted(
                    (
                        self._owner(pid, vram)
                        for pid, vram in by_pid.items()
                        if not self._is_own(pid)
                    ),
                    key=lambda owner: (-owner.vram, owner.pid),
                )
            )
            for place, by_pid in held.items()
        }
        alive = {(o.pid, o.started) for owners in found.values() for o in owners}
        self._known = {key: known for key, known in self._known.items() if key in alive}
        self._jobs = {key: job for key, job in self._jobs.items() if key in alive}
        return found

    def _look_through(self, held: Holdings) -> None:
        """Take what the last look found, and begin another when it is due."""
        if not self._looking.busy and self._memo.now >= self._look_due:
            self._look_due = self._memo.now + SLOW
            before = self._look or _Look()
            compute = frozenset(self._accounts())
            self._looking.start(lambda: self._descriptors.look(before, compute))
        look = self._looking.take()
        if look is not None:
            self._look = look
            self._beyond = self._beyond_kfd(look, held)

    def _beyond_kfd(
        self, look: _Look, held: Holdings
    ) -> dict[tuple[DeviceKey, int], tuple[float | None, int]]:
        """What processes hold by DRM more than by KFD; a client that several share counts once."""
        sharing: dict[tuple[DeviceKey, str], dict[int, int]] = {}
        for pid, clients in look.clients.items():
            for client in clients:
                by_pid = sharing.setdefault((client.place, client.number), {})
                by_pid[pid] = max(by_pid.get(pid, 0), client.vram)
        sums: dict[tuple[DeviceKey, int], int] = {}
        for (place, _), by_pid in sharing.items():
            pid = min(by_pid, key=lambda pid: (pid not in held.get(place, {}), self._age(pid)))
            sums[place, pid] = sums.get((place, pid), 0) + max(by_pid.values())
        beyond: dict[tuple[DeviceKey, int], tuple[float | None, int]] = {}
        for (place, pid), amount in sums.items():
            more = amount - held.get(place, {}).get(pid, 0)
            process = self._process(pid)
            if more > 0 and process is not None:
                beyond[place, pid] = process.started, more
        return beyond

    def _rank(self) -> dict[str, frozenset[int]]:
        sums: dict[str, dict[int, int]] = {}
        for place, owners in self._owners().items():
            of_device = sums.setdefault(place.address, {})
            for owner in owners:
                of_device[owner.pid] = of_device.get(owner.pid, 0) + owner.vram
        return {
            address: frozenset(sorted(by_pid, key=lambda pid: (-by_pid[pid], pid))[:SHOWN])
            for address, by_pid in sums.items()
        }

    # ------------------------------------------------------------------ processes

    def _elsewhere(self) -> bool:
        """Whether /proc has other numbers than KFD, which always has the host's."""

        def ask() -> bool:
            try:
                namespace = self._files.link("/proc/self/ns/pid")
            except OSError:
                return False
            # The second process of the host, and of it alone, is the kernel's.
            return namespace != _INITIAL_NAMESPACE and (
                read_text(self._files, "/proc/2/comm") != "kthreadd"
            )

        return self._memo.get("elsewhere", ASK_AGAIN, ask)

    def _process(self, pid: int) -> _Process | None:
        known: dict[int, _Process | None] = self._memo.get("stat", POLL, dict)
        if pid not in known:
            known[pid] = _parse_stat(read_text(self._files, f"/proc/{pid}/stat"))
        return known[pid]

    def _age(self, pid: int) -> tuple[float, int]:
        process = self._process(pid)
        return (float("inf") if process is None else process.started), pid

    def _owner(self, pid: int, vram: int) -> Owner:
        if self._elsewhere():
            return Owner(pid, vram, None, OTHER_NAMESPACE)
        process = self._process(pid)
        if process is None:
            seen = not isinstance(read_text(self._files, "/proc/1/stat"), Absent)
            return Owner(pid, vram, None, GONE if seen else HIDDEN)
        state = {"Z": ZOMBIE, "X": GONE, "x": GONE}.get(process.state, RUNNING)
        return Owner(pid, vram, process.started, state)

    def _is_own(self, pid: int) -> bool:
        if not self._own or self._elsewhere():
            return False
        process = self._process(pid)
        return process is not None and self._recall(pid, process.started)[1]

    def _recall(self, pid: int, started: float) -> tuple[Identity, bool]:
        """Who a process is, and whether it is one of ours."""
        key = (pid, started)
        if key not in self._known:
            self._known[key] = self._identify(pid)
        return self._known[key]

    def _identify(self, pid: int) -> tuple[Identity, bool]:
        process = self._process(pid)
        cgroups = read_text(self._files, f"/proc/{pid}/cgroup")
        member = Membership() if isinstance(cgroups, Absent) else membership(cgroups)
        identity = Identity(
            command=label(process.command) if process else "",
            user=label(self._user(pid)),
            container_id=member.container_id,
            in_pod=bool(member.pod_uid),
            job_id=label(member.job_id),
        )
        return identity, self._descends(pid)

    def _descends(self, pid: int) -> bool:
        """Whether a process is one of our own, or was started by one."""
        for _ in range(4):  # daemon, worker, a vendor's tool, and what that starts
            if pid in self._own:
                return True
            process = self._process(pid)
            if process is None or process.parent <= 1:
                return False
            pid = process.parent
        return False

    def _user(self, pid: int) -> str:
        """By name where the node's own file has it, else by number; no directory is asked."""
        status = read_text(self._files, f"/proc/{pid}/status")
        found = None if isinstance(status, Absent) else re.search(r"^Uid:\s+(\d+)", status, re.M)
        if found is None:
            return ""
        return self._name(found.group(1))

    def _name(self, uid: str) -> str:
        names: Mapping[str, str] = self._memo.get(_PASSWD, ASK_AGAIN, self._users)
        return names.get(uid, uid)

    def _users(self) -> dict[str, str]:
        told = read_text(self._files, _PASSWD)
        names: dict[str, str] = {}
        for line in () if isinstance(told, Absent) else told.splitlines():
            name, _, rest = line.partition(":")
            uid = rest.split(":")[1:2]
            if name and uid and uid[0].isdigit():
                names.setdefault(uid[0], name)
        return names

    def _pods(self) -> dict[str, Identity]:
        """By container id, as the names of the containers' log files tell."""
        try:
            names = self._files.list(_LOGS)
        except OSError:
            return {}
        found = (match for name in names if (match := _LOG.fullmatch(name)))
        return {
            m[4]: Identity(pod=label(m[1]), namespace=label(m[2]), container=label(m[3]))
            for m in found
        }

    # ------------------------------------------------------------------ environments

    def _read_jobs(self) -> None:
        """Read the jobs of the owners that are told of by name and whose control group has none."""
        wanted: dict[tuple[int, float], None] = {}
        for place, owners in self._owners().items():
            shown = self.shown(place.address)
            for owner in owners:
                if owner.started is None or owner.state != RUNNING or owner.pid not in shown:
                    continue
                key = (owner.pid, owner.started)
                if key not in self._jobs and not self._recall(*key)[0].job_id:
                    wanted[key] = None
        if wanted and not self._asking.busy:
            self._asking.start(lambda: {key: self._job(key[0]) for key in wanted})
        self._jobs.update(self._asking.take() or {})

    def _job(self, pid: int) -> str | Absent:
        told = read_text(self._files, f"/proc/{pid}/environ")
        if not isinstance(told, Absent):
            return label(job_of_environment(told))
        if told.reason == NOT_PERMITTED:
            return Absent(NOT_PERMITTED, f"/proc/PID/environ of other users: {RIGHTS}")
        return ""
