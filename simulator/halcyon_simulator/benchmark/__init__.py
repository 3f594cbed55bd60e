"""The table of every scaler on every scenario: scenarios, statistics, stored results, page and plots."""
