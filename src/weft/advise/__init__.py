"""Do I need InfiniBand? The answer for one cluster and its work, with the runs that it rests on."""
