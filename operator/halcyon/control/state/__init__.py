"""Caches of cluster objects, which informers fill, and the scope, which is the input of one reconcile.

Out of scope: decisions. This package only reads.
"""
