"""Several subnet managers: who is the master, and what a standby must know."""
