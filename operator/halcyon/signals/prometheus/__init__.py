"""Prometheus as a data source for the arrival history and for GPU utilisation (from NVIDIA's DCGM exporter)."""
