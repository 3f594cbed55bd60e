"""Canary analysis: sequential tests of errors, latency and queue time against the stable revision."""
