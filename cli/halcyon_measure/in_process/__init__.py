"""A model and the machine's peaks, measured in one process without a server.

The measured process is a child: its memory is the model's alone, and a library that crashes ends no command.
"""
