"""Which pages there are: each library with each model that it can read."""

from __future__ import annotations

from tests.golden.page import Case

CASES = (
    # AMD SMI 10.1
    Case("MI100", "amdsmi", "sid", "MI100", 3),
    Case("MI210", "amdsmi", "sid", "MI210"),
    Case("MI250X", "amdsmi", "sid", "MI250X", 4),
    Case("MI300X", "amdsmi", "sid", "MI300X", 8),
    Case("MI300X-CPX", "amdsmi", "sid", "MI300X", 2, partitions=8),
    Case("MI300X-metrics-1.4", "amdsmi", "sid", "MI300X", metrics=(1, 4)),
    Case("MI300X-metrics-1.5", "amdsmi", "sid", "MI300X", metrics=(1, 5)),
    Case("MI300X-metrics-1.6", "amdsmi", "sid", "MI300X", metrics=(1, 6)),
    Case("MI300X-all-collectors", "amdsmi", "sid", "MI300X", every=True),
    Case("MI300X-card0-aspeed", "amdsmi", "sid", "MI300X", other="aspeed"),
    Case("MI300X-card0-intel", "amdsmi", "sid", "MI300X", other="intel"),
    Case("MI325X", "amdsmi", "sid", "MI325X"),
    Case("MI355X", "amdsmi", "sid", "MI355X"),
    Case("MI355X-CPX", "amdsmi", "sid", "MI355X", 2, partitions=8, every=True),
    Case("MI355X-metrics-1.9", "amdsmi", "sid", "MI355X", metrics=(1, 9), every=True),
    # AMD SMI 6.1.2, which reads gpu_metrics up to 1.5
    Case("MI100", "amdsmi", "trixie", "MI100"),
    Case("MI210", "amdsmi", "trixie", "MI210"),
    Case("MI250X", "amdsmi", "trixie", "MI250X", 4),
    Case("MI300X-metrics-1.4", "amdsmi", "trixie", "MI300X", metrics=(1, 4)),
    Case("MI300X-metrics-1.5", "amdsmi", "trixie", "MI300X", metrics=(1, 5)),
    Case("MI300X-metrics-1.7", "amdsmi", "trixie", "MI300X"),  # newer than it reads
    Case("MI355X-metrics-1.5", "amdsmi", "trixie", "MI355X", metrics=(1, 5)),
    # ROCm SMI 5.2.3, 6.1.2 and 6.4.1
    Case("MI100", "rocm_smi", "bookworm", "MI100"),
    Case("MI250X", "rocm_smi", "bookworm", "MI250X", 4),
    Case("MI300X", "rocm_smi", "bookworm", "MI300X"),  # it does not open here: files alone
    Case("MI100", "rocm_smi", "trixie", "MI100"),
    Case("MI250X", "rocm_smi", "trixie", "MI250X", 4),
    Case("MI300X-metrics-1.5", "rocm_smi", "trixie", "MI300X", metrics=(1, 5)),
    Case("MI250X", "rocm_smi", "sid", "MI250X", 4),
    Case("MI300X", "rocm_smi", "sid", "MI300X"),
    Case("MI300X-CPX", "rocm_smi", "sid", "MI300X", 2, partitions=8),
    Case("MI355X", "rocm_smi", "sid", "MI355X"),  # whose table is newer than it reads
    # the kernel's files alone, read by the oldest suite's C library
    Case("MI100", "sysfs", "bookworm", "MI100"),
    Case("MI250X", "sysfs", "bookworm", "MI250X", 4),
    Case("MI300X", "sysfs", "bookworm", "MI300X"),
    Case("MI300X-CPX", "sysfs", "bookworm", "MI300X", 2, partitions=8),
)
