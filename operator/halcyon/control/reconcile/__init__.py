"""The reconcile loop of ModelDeployments. Workers take keys from the queue, and pass them to the reconciler.

The reconciler makes the plan, writes the child objects, and writes the status.
"""
