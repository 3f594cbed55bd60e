"""Measurements in the cluster: the copy of a served model, the Job of the client, and the transfer of its result."""
