"""What there is: the walk seen as a fabric, what changed since, and what devices tell unasked."""
