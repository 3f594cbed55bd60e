"""Signals: the agents' reports and Prometheus data as observations with an age.

This package decides who may report for a model (`collector`) and which values are plausible (`validation`). It merges the
reports of several agents into one observation (`observation_store`, `time_series`). Out of scope: decisions
(`halcyon.scaling`), and any call to Kubernetes.
"""
