"""amdgpu-exporter: health and performance of AMD GPUs, for Prometheus."""

__version__ = "0.1.0"
