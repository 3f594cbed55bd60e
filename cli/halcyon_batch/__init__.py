"""Runner of batch inference: it sends the rows of a data set to a served model, and writes the results in parts.

Command: `python -m halcyon_batch RECIPE`. Out of scope: the Job with the runner's pod (`halcyon.batch`), and the
commands for users (`halcyon_cli`).
"""
