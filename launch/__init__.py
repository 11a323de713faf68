"""Shell entry points, and the Python behind them that needs no install."""
