"""Signals that agents do not report: the pods in the caches, GPU utilisation from other sources, and the results of the site's queries."""
