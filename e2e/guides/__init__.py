"""Tests that run the commands in the pages of docs/ as a reader would: `make test-guides`."""
