"""The reconcile loop: workers take keys from the queue; the reconciler plans, writes the children and writes the status."""
