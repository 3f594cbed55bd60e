"""Tests that run the commands in README on a new cluster with an image registry: `make test-readme`."""
