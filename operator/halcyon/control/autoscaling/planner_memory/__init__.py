"""Stored form of planner memories: entries of models, and the shards that hold the entries. Without I/O."""
