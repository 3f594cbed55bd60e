"""What is generated from the code and committed: `scripts/generate` runs these. In no wheel and no image."""
