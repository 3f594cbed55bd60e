"""Canary analysis: sequential tests of a canary's errors, latency and queue time against the stable revision."""
