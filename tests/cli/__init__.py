"""The command `amdgpu-exporter` as a process of its own."""
