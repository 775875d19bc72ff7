"""What stands against its plan: which device is which, the fewest plugs to touch, in the order of a walk."""
