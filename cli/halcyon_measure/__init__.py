"""Measurement of a served model: schedules, payloads, protocols, the load engine, and results.

The package is a layer below the commands: it doesn't access the Kubernetes API and prints nothing. `schedule` and
`results` are pure.
"""
