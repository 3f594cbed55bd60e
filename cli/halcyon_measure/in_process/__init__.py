"""Measurements of a model and of the machine's peak rates in one process, without a server.

The measurement runs in a child process. Therefore the measured memory is only that of the model, and a crash in a
library doesn't end the command.
"""
