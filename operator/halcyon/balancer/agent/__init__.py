"""The process `halcyon agent`: its loops, probes and settings."""
