"""The runner of batch inference: sends the rows of a data set to a served model, and writes the results in parts.

`python -m halcyon_batch RECIPE` runs it. Out of scope: the Job with its pod (`halcyon.batch`), and the commands (`halcyon_cli`).
"""
