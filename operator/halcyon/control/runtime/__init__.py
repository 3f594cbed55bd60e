"""The operator as a process: settings, the object graph, start and stop order, HTTP endpoints, logging."""
