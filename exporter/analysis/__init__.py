"""What needs memory of earlier polls: assembly field by field, rates, numbers of devices."""
