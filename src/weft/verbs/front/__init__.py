"""What is put in front of a Python program's search path: a pyverbs that is weft's. See `launch`."""
