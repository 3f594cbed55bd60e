"""Canary analysis: sequential tests that compare a canary's errors, latency and queue time with those of stable."""
