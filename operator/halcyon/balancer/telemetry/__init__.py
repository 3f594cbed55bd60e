"""The agent's measurements and reports: samples of pods, dead backends, the metrics page, the stream of reports to the operator."""
