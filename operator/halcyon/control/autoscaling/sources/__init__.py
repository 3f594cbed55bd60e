"""Signals that agents don't report: cached pods, other sources of GPU utilisation, results of the site's queries."""
