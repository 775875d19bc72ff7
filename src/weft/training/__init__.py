"""A training job on a fabric: how long one optimizer step takes, and where the time goes."""
