"""`python -m weft.verbs.pyverbs app.py`: a program for pyverbs with weft's, as `weft verbs python app.py` runs it."""

import sys

from weft.verbs.launch import become

if not sys.argv[1:]:
    print("python -m weft.verbs.pyverbs takes a program: app.py, -c CODE or -m MODULE", file=sys.stderr)
    sys.exit(2)
become([sys.executable, *sys.argv[1:]])
