"""Measurement of a served model: schedules, payloads, protocols, the load engine, and results.

It is a layer below the commands: it reads no cluster and prints nothing. `schedule` and `results` are pure.
"""
