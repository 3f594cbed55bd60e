"""Prometheus as a data source: the history of arrivals, and GPU utilisation from NVIDIA's DCGM exporter."""
