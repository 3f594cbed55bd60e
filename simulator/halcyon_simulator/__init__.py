"""Discrete-event simulator of scaling policies.

It simulates the load, pods that take time to start, and Triton's batcher.

The policies are Halcyon's own planner and the autoscalers of other projects. A simulation shows how a policy would have
scaled under a given load. Out of scope: the planner (`halcyon.scaling`) and anything that connects to a cluster. The
package needs numpy and numba.
"""
