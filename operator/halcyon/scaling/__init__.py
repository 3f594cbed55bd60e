"""Scaling decisions as pure functions: how many replicas a model needs, and why.

This package holds what is known about a model at one time (`observations`), the planner (`planner`), the HPA's rules
and its algorithm for clusters without an HPA (`hpa`), canary analysis (`canary`), and the decision as data
(`policy`). Out of scope: the source of observations (`halcyon.signals`), writing the replicas (`halcyon.control`),
any clock, any I/O.
"""
