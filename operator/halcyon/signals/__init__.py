"""Signals: reports received from agents, values queried from Prometheus, and observations of models built from both.

`collector` receives reports and checks which model an agent may report about. `validation` drops implausible values.
`observation_store` and `time_series` merge the reports of several agents into one observation per model. Out of scope:
decisions (`halcyon.scaling`), and calls to Kubernetes.
"""
