"""Time: the same traffic on a fabric, by engines that each answer one question."""
