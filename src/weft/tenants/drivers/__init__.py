"""How partitions get into a fabric; `driver` says what each of them does."""
