"""End-to-end tests and what they stand on: the embedded cluster, load, the scenarios. Never shipped."""
