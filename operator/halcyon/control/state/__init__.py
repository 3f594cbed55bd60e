"""The caches of cluster objects, filled by informers, and the scope: the input of one reconcile.

Out of scope: decisions. This package only reads.
"""
