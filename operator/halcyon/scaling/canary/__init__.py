"""Whether a canary is as good as what it replaces: sequential analysis of errors and latency."""
