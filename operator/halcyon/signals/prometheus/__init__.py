"""Prometheus as a source: arrival history, and GPU utilisation from DCGM."""
