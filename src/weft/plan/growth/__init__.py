"""From today to a larger fabric: which switch takes which place, which cables move when, and the proofs."""
