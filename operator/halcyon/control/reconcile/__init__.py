"""The reconcile loop.

Workers take keys from the queue. The reconciler makes the plan, writes the child objects, and writes the status.
"""
