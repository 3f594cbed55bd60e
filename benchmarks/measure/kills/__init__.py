"""Row 2.3: a measurement whose command, Job or node is killed leaves nothing. Its results are in docs/quality/data/kills.json."""
