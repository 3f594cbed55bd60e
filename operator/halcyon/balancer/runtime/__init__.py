"""HAProxy as it runs: its Runtime API, which server stands in which line, variables, service rate and retry budget."""
