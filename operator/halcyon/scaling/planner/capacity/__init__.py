"""What replicas can do: the service line, queueing formulae, backlog, and queues that are bounded by rejection."""
