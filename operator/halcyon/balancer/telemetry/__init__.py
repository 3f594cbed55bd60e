"""The agent's measurements and reports: pod samples, dead backends, the metrics page, and the stream of reports."""
