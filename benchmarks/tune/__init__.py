"""Measurements of `halcyon tune` itself, against truths that it doesn't know: the table `tune` of docs/quality."""
