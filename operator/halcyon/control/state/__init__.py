"""The state of the cluster as informers hold it, and the scope that one reconcile works on.

Out of scope: decisions. Everything here reads.
"""
