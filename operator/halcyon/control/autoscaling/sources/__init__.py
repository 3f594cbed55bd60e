"""Signals that agents do not report: GPU utilisation from other sources, and the results of the site's queries."""
