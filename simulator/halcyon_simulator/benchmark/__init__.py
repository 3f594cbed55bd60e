"""The table of every scaler on every scenario: scenarios, statistics, results kept between runs, page and plots."""
