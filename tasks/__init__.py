"""What the stages do: one file of Prefect tasks for each stage, and the machinery behind them."""
