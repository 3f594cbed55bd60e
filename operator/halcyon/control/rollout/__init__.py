"""How a new revision takes over: rolling updates, the canary's steps and analysis, records of revisions. Pure but for the analysis' samples."""
