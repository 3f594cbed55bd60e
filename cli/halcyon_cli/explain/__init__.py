"""Report on a model's number of replicas, as data that commands format."""
