"""The controller: from ModelDeployments to objects, and from what is to their status.

`front` (kopf) hands over keys, `informer` keeps what is, `queue` says what is next, `reconcile` does it: observe, plan,
apply. Decisions are in the pure modules `plan` and `status`; only `client` speaks with the API server.
"""
