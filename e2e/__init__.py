"""End-to-end tests and what they stand on: the embedded cluster, the images, the scenarios. Never shipped."""
