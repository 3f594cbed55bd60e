"""What a load has measured: columns of requests, statistics, verdicts on the run, and the document. Pure."""
