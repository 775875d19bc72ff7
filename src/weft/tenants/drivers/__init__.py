"""How slices get into a fabric; `driver` says what each of them does."""
