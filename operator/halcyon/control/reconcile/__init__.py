"""The reconcile loop: workers take keys from the queue, the reconciler observes, plans, applies and writes the status."""
