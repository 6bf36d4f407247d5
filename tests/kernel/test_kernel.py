"""AMD's own libraries run on the simulated kernel, list what it declares, and fail as told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kernel import metrics as blob
from tests.kernel import packages
from tests.kernel.launch import Launcher, launcher, tool_launcher
from tests.kernel.node import MODELS, MetricsFault, Node, scratch

AMD_SMI = ("trixie", "sid")
READABLE_BY_6_1_2 = (1, 5)
"""The newest gpu_metrics that AMD SMI 6.1.2 reads."""

_PRELUDE = """
import json, os, sys, warnings
sys.path.insert(0, os.path.join(os.environ["ROCM_PATH"], "share", "amd_smi"))
warnings.simplefilter("ignore")
import amdsmi as smi
def call(name, *arguments):
    function = getattr(smi, name, None)
    if function is None:
        return None
    try:
        return function(*arguments)
    except smi.AmdSmiException as error:
        return f"error {getattr(error, 'err_code', '')}"
def say(value):
    print(json.dumps(value, default=str), flush=True)
smi.amdsmi_init()
handles = smi.amdsmi_get_processor_handles()
hotspot = (smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT)
"""
_FACTS = """
say([{
    "bdf": call("amdsmi_get_gpu_device_bdf", h),
    "kfd": call("amdsmi_get_gpu_kfd_info", h),
    "asic": call("amdsmi_get_gpu_asic_info", h),
    "hotspot": call("amdsmi_get_temp_metric", h, *hotspot),
    "metrics": call("amdsmi_get_gpu_metrics_info", h),
    "partition": call("amdsmi_get_gpu_partition_metrics_info", h),
    "power": call("amdsmi_get_power_info", h),
    "vram": call("amdsmi_get_gpu_vram_usage", h),
    "replay": call("amdsmi_get_gpu_pci_replay_counter", h),
    "ecc": call("amdsmi_get_gpu_ecc_count", h, smi.AmdSmiGpuBlock.UMC),
    "processes": call("amdsmi_get_gpu_process_list", h),
} for h in handles])
"""
_ONE = """
h = handles[0]
say([
    call("amdsmi_get_temp_metric", h, *hotspot),
    call("amdsmi_get_gpu_metrics_info", h),
    call("amdsmi_get_gpu_pci_replay_counter", h),
    len(os.listdir("/proc/self/fd")),
])
"""


@pytest.fixture
def tree() -> Iterator[Path]:
    """An empty folder for a node."""
    with scratch() as folder:
        yield folder


def run(
    start: Launcher, code: str, *arguments: str, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run Python code on a simulated kernel."""
    return subprocess.run(
        start.command(["-c", code, *arguments]),
        env={**os.environ, **start.environment()},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )


def facts(start: Launcher, code: str = _FACTS) -> Any:
    """What the code said in its last line."""
    done = run(start, _PRELUDE + code)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def node_for(suite: str, folder: Path, model: str, count: int = 2, **options: Any) -> Node:
    """A node whose gpu_metrics the suite's AMD SMI can read."""
    if suite == "trixie" and MODELS[model].metrics > READABLE_BY_6_1_2:
        options.setdefault("metrics", READABLE_BY_6_1_2)
    return Node.create(folder, model, count, **options)


# ------------------------------------------------------------------------------------ packages


def test_a_filled_cache_needs_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither apt nor pip nor a compiler runs when everything is there."""
    expected = [packages.suite_root(suite) for suite in packages.SUITES]
    shim = packages.build_shim()

    def forbidden(*_: object) -> str:
        raise AssertionError("a command was run")

    monkeypatch.setattr(packages, "_run", forbidden)
    assert [packages.suite_root(suite) for suite in packages.SUITES] == expected
    assert packages.build_shim() == shim
    assert packages.umockdev_preload().exists()


def test_versions_are_those_of_the_packages() -> None:
    """The suites bring the library generations that the project is tested with."""
    found = {suite: packages.suite_root(suite) for suite in packages.SUITES}
    assert (found["bookworm"].amd_smi, found["bookworm"].rocm_smi) == (None, "5.2.3")
    assert (found["trixie"].amd_smi, found["trixie"].rocm_smi) == ("6.1.2", "6.1.2")
    newest = found["sid"]  # it moves on, so only the generation is certain
    assert newest.amd_smi is not None
    assert int(newest.amd_smi.split(".")[0]) >= 10
    for root in found.values():
        assert (root.rocm / "lib/librocm_smi64.so").exists()
        assert (root.rocm / "libexec/rocm_smi/rsmiBindings.py").exists()
        assert (root.rocm / "share/amd_smi/amdsmi/__init__.py").exists() == bool(root.amd_smi)


def test_a_failed_fetch_leaves_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what failed, and the next try starts afresh."""
    monkeypatch.setenv(packages.CACHE_VARIABLE, str(tree))
    monkeypatch.setenv(packages.MIRROR_VARIABLE, f"file://{tree}/nowhere")
    with pytest.raises(packages.FetchError, match="Debian trixie: apt-get failed"):
        packages.suite_root("trixie")
    left = [path.name for path in (tree / "kernel").iterdir()]
    assert sorted(left) == [".gitignore", ".trixie.lock"]


def test_only_known_names_are_fetched() -> None:
    """A misspelt suite or an open version is refused before anything is asked of a registry."""
    with pytest.raises(ValueError, match="unknown suite"):
        packages.suite_root("trixy")
    with pytest.raises(ValueError, match="no exact version"):
        packages.amdsmi_wheel("6.1")


# ------------------------------------------------------------------------------------ metrics


@pytest.mark.parametrize(
    ("version", "size"),
    [((1, 3), 120), ((1, 4), 288), ((1, 5), 360), ((1, 6), 1664), ((1, 7), 2208), ((1, 8), 3872)],
)
def test_structure_sizes(version: tuple[int, int], size: int) -> None:
    """The sizes are those of the kernel's structures."""
    data = blob.pack(version, {})
    assert len(data) == size
    assert data[:4] == size.to_bytes(2, "little") + bytes(version)


def test_too_many_elements_are_refused() -> None:
    """A list longer than the structure has room for is a mistake of the test."""
    with pytest.raises(ValueError, match="temperature_hbm has 4 elements, not 5"):
        blob.pack((1, 3), {"temperature_hbm": [1, 2, 3, 4, 5]})


# ------------------------------------------------------------------------------------ launching


@pytest.mark.parametrize("suite", packages.SUITES)
def test_the_kernel_is_the_simulated_one(suite: str, tree: Path) -> None:
    """The machine's Python sees the tree, also in its extension modules' company."""
    Node.create(tree, "MI210", 1)
    code = "import ctypes, ssl, sqlite3; print(open('/sys/module/amdgpu/version').read())"
    done = run(launcher(suite, tree), code)
    assert (done.returncode, done.stdout.strip()) == (0, "6.10.5"), done.stderr


def test_a_virtual_environment_stays_one(tree: Path) -> None:
    """Packages of a virtual environment are importable, and sys.prefix is its folder."""
    venv.create(tree / "venv", with_pip=False)
    site = next((tree / "venv/lib").glob("python*/site-packages"))
    (site / "only_here.py").write_text("VALUE = 42\n")
    start = replace(launcher("sid", tree), python=str(tree / "venv/bin/python"))
    done = run(start, "import sys, only_here; print(sys.prefix, only_here.VALUE)")
    assert done.stdout.split() == [str(tree / "venv"), "42"], done.stderr


def test_children_see_the_real_machine_unless_asked(tree: Path) -> None:
    """Only AMD's tools need the programs that they start on the simulated kernel."""
    Node.create(tree, "MI210", 1)
    code = "import subprocess; subprocess.run(['cat', '/sys/module/amdgpu/version'])"
    assert "6.10.5" not in run(launcher("sid", tree), code).stdout
    assert "6.10.5" in run(tool_launcher("sid", tree), code).stdout


def test_another_wrapper_can_be_put_in_front(tree: Path) -> None:
    """The wrapper from PyPI works on the library of its own version, and only there."""
    wheel = packages.amdsmi_wheel("6.1.2")
    kept = [line for line in _PRELUDE.splitlines() if "sys.path" not in line]
    code = "\n".join([*kept, "say(len(handles))"])
    Node.create(tree, "MI210", 2)
    same = replace(launcher("trixie", tree), modules=(wheel,))
    assert run(same, code).stdout.strip() == "2"
    mixed = run(replace(launcher("sid", tree), modules=(wheel,)), code)
    assert "undefined symbol" in mixed.stderr


# ------------------------------------------------------------------------------------ models


@pytest.mark.parametrize("suite", AMD_SMI)
@pytest.mark.parametrize("model", sorted(MODELS))
def test_amd_smi_lists_what_is_declared(suite: str, model: str, tree: Path) -> None:
    """Every GPU's values reach the caller under its own address."""
    node = node_for(suite, tree, model, 4)
    found = facts(launcher(suite, tree))
    assert [entry["bdf"] for entry in found] == [gpu.bdf for gpu in node.gpus]
    average = node.metrics_version == (1, 3)
    for gpu, entry in zip(node.gpus, found, strict=True):
        state = node.state[gpu.index]
        assert entry["hotspot"] == state["temperature_hotspot"]
        assert entry["metrics"]["energy_accumulator"] == state["energy_accumulator"]
        assert entry["metrics"]["system_clock_counter"] == state["system_clock_counter"]
        kind = "average" if average else "current"
        field = "average_socket_power" if average else "curr_socket_power"
        assert entry["power"][f"{kind}_socket_power"] == state[field]
        assert entry["vram"]["vram_total"] == node.model.vram_bytes >> 20
        assert entry["vram"]["vram_used"] == 300 + gpu.index
        assert entry["replay"] == 30 + gpu.index
        assert entry["asic"]["asic_serial"].lower() == f"0x{gpu.unique_id:x}"
        if node.model.hbm_sensors:
            assert entry["metrics"]["temperature_hbm"] == state["temperature_hbm"]
        if gpu.secondary:
            assert state["energy_accumulator"] == state[field] == 0


@pytest.mark.parametrize("suite", AMD_SMI)
def test_partitions(suite: str, tree: Path) -> None:
    """A node of eight GPUs in CPX mode has 64 processors, eight at each address."""
    node = node_for(suite, tree, "MI300X", 8, partitions=8)
    found = facts(launcher(suite, tree))
    assert [entry["bdf"] for entry in found] == [gpu.bdf for gpu in node.gpus for _ in range(8)]
    if suite == "sid":
        described = [part for gpu in node.gpus for part in gpu.partitions]
        for part, entry in zip(described, found, strict=True):
            assert entry["kfd"] == {
                "kfd_id": part.gpu_id,
                "node_id": part.kfd_node,
                "current_partition_id": part.index,
            }
            # the driver's attributes exist once for the GPU, at its first partition
            assert isinstance(entry["metrics"], dict) == (part.index == 0)


def test_partition_metrics(tree: Path) -> None:
    """A driver with xcp_metrics gives each partition its own activity."""
    node = Node.create(tree, "MI355X", 2, partitions=8)
    found = facts(launcher("sid", tree))
    for position, entry in enumerate(found):
        gpu, part = divmod(position, 8)
        busy = entry["partition"]["xcp_stats.gfx_busy_inst"][0]
        assert busy[0] == node.state[gpu][f"xcp{part}_gfx_busy_inst"][0]  # type: ignore[index]  # a list


def test_metrics_as_a_list(tree: Path) -> None:
    """Version 1.9 has the temperature of every memory stack."""
    node = Node.create(tree, "MI355X", 2, metrics=(1, 9))
    found = facts(launcher("sid", tree))
    for gpu, entry in enumerate(found):
        assert entry["metrics"]["temperature_hbm_stacks"][:8] == node.state[gpu]["temperature_hbm"]
        assert entry["metrics"]["temperature_hotspot"] == node.state[gpu]["temperature_hotspot"]


@pytest.mark.parametrize("suite", AMD_SMI)
@pytest.mark.parametrize("other", ["intel", "aspeed"])
def test_the_first_card_is_another_vendors(suite: str, other: Any, tree: Path) -> None:
    """Card numbers don't start at 0 where another graphics card came first."""
    node = node_for(suite, tree, "MI210", 2, other=other)
    assert node.gpus[0].card == 1
    found = facts(launcher(suite, tree))
    assert [entry["bdf"] for entry in found] == [gpu.bdf for gpu in node.gpus]
    assert [entry["hotspot"] for entry in found] == [45, 46]


@pytest.mark.parametrize(
    ("suite", "model"),
    [("bookworm", "MI210"), ("trixie", "MI300X"), ("sid", "MI300X"), ("sid", "MI355X")],
)
def test_rocm_smi_lists_what_is_declared(suite: str, model: str, tree: Path) -> None:
    """AMD's rocm-smi tool, with its library and its Python bindings, knows the same GPUs."""
    node = node_for(suite, tree, model)
    start = tool_launcher(suite, tree)
    tool = str(start.suite.rocm_smi_cli)
    done = subprocess.run(
        start.command([tool, "--showbus", "--showmeminfo", "vram", "--json"]),
        env={**os.environ, **start.environment()},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = json.loads(done.stdout.splitlines()[0])
    for gpu in node.gpus:
        card = found[f"card{gpu.index}"]
        assert card["PCI Bus"].lower() == gpu.bdf
        assert int(card["VRAM Total Used Memory (B)"]) == (300 + gpu.index) << 20


def test_rocm_smi_5_cannot_start_on_mi300x(tree: Path) -> None:
    """It asks for a voltage sensor that the model lacks: a real incompatibility, kept."""
    Node.create(tree, "MI300X", 1)
    start = tool_launcher("bookworm", tree)
    done = subprocess.run(
        start.command([str(start.suite.rocm_smi_cli), "--showbus", "--json"]),
        env={**os.environ, **start.environment()},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"ROCm SMI returned 8" in done.stderr


# ------------------------------------------------------------------------------------ changes


@pytest.mark.parametrize("suite", AMD_SMI)
def test_live_changes(suite: str, tree: Path) -> None:
    """What changes is seen by the next start, on the GPU that it concerns and on no other."""
    node = node_for(suite, tree, "MI300X")
    node.temperature(1, "junction", 91)
    node.power(1, 700)
    node.vram(1, 5 << 30)
    node.ras(1, "umc", ue=2, ce=7)
    node.set(1, "pcie_replay_count", 77)
    before = dict(node.state[1])
    node.advance(2.0, [1])
    first, second = facts(launcher(suite, tree))
    assert (first["hotspot"], second["hotspot"]) == (45, 91)
    assert (first["power"]["current_socket_power"], second["power"]["current_socket_power"]) == (
        140,
        700,
    )
    assert (first["vram"]["vram_used"], second["vram"]["vram_used"]) == (300, 5 << 10)
    assert (first["replay"], second["replay"]) == (30, 77)
    assert second["ecc"]["uncorrectable_count"] == 2
    assert second["ecc"]["correctable_count"] == 7
    passed = second["metrics"]["system_clock_counter"] - int(str(before["system_clock_counter"]))
    assert passed == 2_000_000_000
    used = second["metrics"]["energy_accumulator"] - int(str(before["energy_accumulator"]))
    assert used == 2 * 700 * 65536


@pytest.mark.parametrize("suite", AMD_SMI)
def test_processes(suite: str, tree: Path) -> None:
    """A process is listed on the GPUs that it uses, with a number that no real process has."""
    node = node_for(suite, tree, "MI300X")
    node.process(4_100_000, {1: 3 << 30}, name="trainer")
    first, second = facts(launcher(suite, tree))
    assert first["processes"] == []
    assert [entry["pid"] for entry in second["processes"]] == [4_100_000]
    assert second["processes"][0]["name"].endswith("trainer")
    node.end_process(4_100_000)
    assert facts(launcher(suite, tree))[1]["processes"] == []


@pytest.mark.parametrize("suite", AMD_SMI)
def test_coming_and_going(suite: str, tree: Path) -> None:
    """A GPU falls off the bus and returns; the driver is unloaded and loaded."""
    node = node_for(suite, tree, "MI300X", 3)
    start = launcher(suite, tree)
    node.remove(1)
    assert not (node.sysfs("bus/pci/devices") / node.gpus[1].bdf).exists()
    left = facts(start, "say([call('amdsmi_get_gpu_device_bdf', h) for h in handles])")
    # 6.1.2 loses every GPU behind a gap in the card numbers
    expected = [node.gpus[0].bdf, node.gpus[2].bdf]
    assert left == (expected if suite == "sid" else expected[:1])
    node.restore(1)
    assert len(facts(start)) == 3
    node.unload_driver()
    assert (node.device(0) / "aer_dev_correctable").exists()
    assert not (node.device(0) / "gpu_metrics").exists()
    assert run(start, _PRELUDE).returncode != 0
    node.load_driver()
    assert len(facts(start)) == 3


@pytest.mark.parametrize(
    "fault", ["missing", "empty", "garbage", "truncated", "zero", "unknown_revision", "all_ones"]
)
def test_broken_metrics(fault: MetricsFault, tree: Path) -> None:
    """Each kind of broken file is written, and put right again."""
    node = Node.create(tree, "MI210", 1)
    path = node.device(0, "gpu_metrics")
    good = path.read_bytes()
    node.break_metrics(0, fault)
    assert not path.exists() if fault == "missing" else path.read_bytes() != good
    node.metrics(0)
    assert path.read_bytes() == good


def test_the_kernels_formats(tree: Path) -> None:
    """Files that no library of AMD reads but the exporter does."""
    node = Node.create(tree, "MI300X", 2)
    node.aer(0, "correctable", BadTLP=3, Timeout=1)
    lines = node.get(0, "aer_dev_correctable").splitlines()
    assert lines[1] == "BadTLP 3"
    assert lines[-1] == "TOTAL_ERR_COR 4"
    with pytest.raises(ValueError, match="no correctable AER error BadTPL"):
        node.aer(0, "correctable", BadTPL=1)
    with pytest.raises(ValueError, match="has no"):
        node.metrics(0, temperature_edge=1)
    link = node.sysfs("bus/pci/devices", node.gpus[1].bdf)
    assert link.resolve() == node.device(1)
    assert node.device(1).parent == node.port(1)
    twin = Node.create(tree / "twin", "MI300X", 2)
    twin.aer(0, "correctable", BadTLP=3, Timeout=1)
    for path in sorted(node.sysfs("devices").rglob("*")):
        if path.is_file() and not path.is_symlink():
            other = twin.sysfs() / path.relative_to(node.sysfs())
            assert path.read_bytes() == other.read_bytes(), "the tree depends on something else"


@pytest.mark.parametrize("suite", AMD_SMI)
def test_events_and_counters(suite: str, tree: Path) -> None:
    """KFD's events reach a listener, and the perf counters of MI100 can be read."""
    node = Node.create(tree, "MI100", 2)
    code = """
reader = smi.AmdSmiEventReader(handles[1], [smi.AmdSmiEvtNotificationType.THERMAL_THROTTLE])
say("ready")
sys.stdin.readline()
say(reader.read(500)[0]["event"])
counter = smi.amdsmi_gpu_create_counter(handles[1], smi.AmdSmiEventType.XGMI_DATA_OUT_2)
smi.amdsmi_gpu_control_counter(counter, smi.AmdSmiCounterCommand.CMD_START)
say(smi.amdsmi_gpu_read_counter(counter)["value"])
"""
    node.counter(1, 2, 123456)
    start = launcher(suite, tree)
    with subprocess.Popen(
        start.command(["-c", _PRELUDE + code]),
        env={**os.environ, **start.environment()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == "ready"
        node.event(1, "2 1000:1")
        said = child.communicate("\n", timeout=30)[0].splitlines()
    assert [json.loads(line) for line in said] == ["THERMAL_THROTTLE", 123456]


# ------------------------------------------------------------------------------------ faults


@pytest.fixture
def faulty(tree: Path) -> Node:
    """A small node that both AMD SMI versions can read."""
    return Node.create(tree, "MI300X", 2, metrics=READABLE_BY_6_1_2)


@pytest.mark.parametrize("suite", AMD_SMI)
class TestRules:
    """Fault rules act inside the real library."""

    def one(self, suite: str, node: Node) -> Any:
        """Temperature, metrics, replay counter and open descriptors as seen on the first GPU."""
        return facts(launcher(suite, node.root), _ONE)

    def test_errno(self, suite: str, faulty: Node) -> None:
        """A read fails, on the named GPU only."""
        bdf = faulty.gpus[0].bdf
        faulty.rules(f"{bdf}/hwmon/*/temp2_input errno 5", f"{bdf}/pcie_replay_count errno 19")
        temperature, metrics, replay, _ = self.one(suite, faulty)
        assert str(temperature).startswith("error")
        assert str(replay).startswith("error")
        assert metrics["temperature_hotspot"] == 45
        first, second = facts(launcher(suite, faulty.root))
        assert str(first["hotspot"]).startswith("error")
        assert second["hotspot"] == 46

    def test_open_errno(self, suite: str, faulty: Node) -> None:
        """An open fails."""
        faulty.rules("gpu_metrics open_errno 13")
        assert str(self.one(suite, faulty)[1]).startswith("error")

    def test_short(self, suite: str, faulty: Node) -> None:
        """A file ends early: the replay counter loses its last digit."""
        faulty.rules("pcie_replay_count short 1")
        assert self.one(suite, faulty)[2] == 3

    def test_delay(self, suite: str, faulty: Node) -> None:
        """Every access takes its time; the library opens gpu_metrics twice for each call."""
        faulty.rules("*/gpu_metrics delay 0.3")
        code = (
            "import time; begin = time.monotonic(); call('amdsmi_get_gpu_metrics_info', "
            "handles[0]); say(time.monotonic() - begin)"
        )
        assert 0.55 < facts(launcher(suite, faulty.root), code) < 5

    def test_hang_in_init(self, suite: str, faulty: Node) -> None:
        """The library's initialisation doesn't return, and SIGTERM doesn't end it."""
        faulty.rules("kfd/topology/nodes/*/properties delay inf")
        start = launcher(suite, faulty.root)
        code = "import signal; signal.signal(15, lambda *_: sys.exit(0))\n"
        child = subprocess.Popen(
            start.command(["-c", "import sys\nprint('up', flush=True)\n" + code + _PRELUDE]),
            env={**os.environ, **start.environment()},
            stdout=subprocess.PIPE,
        )
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"up\n"
            time.sleep(0.5)
            child.terminate()
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(0.5)
        finally:
            child.kill()
            child.communicate()

    @pytest.mark.parametrize(
        ("action", "status"),
        [("segv", -signal.SIGSEGV), ("abort", -signal.SIGABRT), ("exit 7", 7)],
    )
    def test_crash(self, suite: str, action: str, status: int, faulty: Node) -> None:
        """The process dies inside a call."""
        faulty.rules(f"temp2_input {action}")
        assert run(launcher(suite, faulty.root), _PRELUDE + _ONE).returncode == status

    def test_print(self, suite: str, faulty: Node) -> None:
        """The library writes to standard output, between the caller's own lines."""
        faulty.rules("temp2_input print Failed to open file: hello")
        done = run(launcher(suite, faulty.root), _PRELUDE + _ONE)
        assert done.stdout.splitlines()[0] == "Failed to open file: hello"

    def test_leak(self, suite: str, faulty: Node) -> None:
        """Every access leaves descriptors open."""
        before = self.one(suite, faulty)[3]
        faulty.rules("temp2_input leakfd 5")
        assert self.one(suite, faulty)[3] - before == 5

    def test_log(self, suite: str, faulty: Node) -> None:
        """What the library opens can be counted."""
        faulty.rules("gpu_metrics log")
        facts(
            launcher(suite, faulty.root), "call('amdsmi_get_gpu_metrics_info', handles[0]); say(0)"
        )
        assert len(faulty.opened()) == 2
        assert faulty.opened()[0][1].endswith(f"{faulty.gpus[0].bdf}/gpu_metrics")

    def test_rules_change_while_a_process_runs(self, suite: str, faulty: Node) -> None:
        """A running process meets a new rule at its next access, and loses it again."""
        start = launcher(suite, faulty.root)
        code = "for line in sys.stdin: say(call('amdsmi_get_temp_metric', handles[0], *hotspot))"
        with subprocess.Popen(
            start.command(["-c", _PRELUDE + code]),
            env={**os.environ, **start.environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None

            def ask() -> object:
                assert child.stdin is not None
                assert child.stdout is not None
                child.stdin.write("\n")
                child.stdin.flush()
                return json.loads(child.stdout.readline())

            assert ask() == 45
            with faulty.faulty("temp2_input errno 5"):
                assert str(ask()).startswith("error")
            assert ask() == 45
            faulty.set(0, "hwmon/temp2_input", 88000)
            assert ask() == 88
            child.stdin.close()


def test_a_misspelt_rule_is_an_error(faulty: Node) -> None:
    """A test whose rule does nothing must not pass."""
    faulty.rules("temp2_input ernno 5")
    done = run(launcher("sid", faulty.root), "open('/sys/module/amdgpu/version')")
    assert done.returncode == -signal.SIGABRT
    assert "bad rule" in done.stderr


def test_faults_of_devices(faulty: Node) -> None:
    """Rules for /dev/dri act on its ioctls."""
    faulty.rules(f"dev/dri/renderD{faulty.gpus[0].render} errno 19")
    code = "say([call('amdsmi_get_gpu_vram_usage', h) for h in handles])"
    first, second = facts(launcher("sid", faulty.root), code)
    assert str(first).startswith("error")
    assert second["vram_used"] == 301


def test_faults_without_a_library(faulty: Node) -> None:
    """Python's own reads meet the rules, also on a descriptor that was open before."""
    code = """
import os, sys
path = "/sys/bus/pci/devices/0000:05:00.0/mem_info_vram_used"
kept = os.open(path, os.O_RDONLY)
print(len(os.pread(kept, 99, 0)), flush=True)
sys.stdin.readline()
for read in (lambda: open(path).read(), lambda: os.pread(kept, 99, 0)):
    try:
        print(read())
    except OSError as error:
        print(error.errno)
"""
    start = launcher("bookworm", faulty.root)
    with subprocess.Popen(
        start.command(["-c", code]),
        env={**os.environ, **start.environment()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "10\n"
        faulty.rules("mem_info_vram_used errno 110")
        assert child.communicate("\n", timeout=30)[0].split() == ["110", "110"]


def test_the_commands_interpreter_is_this_one(tree: Path) -> None:
    """The launcher changes nothing of what the caller asked for."""
    command = launcher("sid", tree).command(["-m", "some.module", "--flag"])
    assert command[-4:] == [sys.executable, "-m", "some.module", "--flag"]
