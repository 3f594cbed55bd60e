"""Signals that agents don't report: data about cached pods, other sources of GPU utilisation, site queries."""
