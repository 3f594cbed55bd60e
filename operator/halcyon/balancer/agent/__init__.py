"""The process `halcyon agent`, which runs next to HAProxy in a balancer pod: its loops, probes and settings."""
