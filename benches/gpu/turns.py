"""A rival's side of the turns: it prepares everything (imports, data, compiling, a warm-up), says so, and times a
variant whenever the driver names it. So all rivals prepare at the same time, and none computes in another's turn."""

import json
import sys


def serve(variants, facts):
    """Prepares `variants`, functions by name that return a function to time one run. Prints a line of JSON when all
    are prepared, then one for each name on the standard input, until that ends."""
    timed, failed = {}, {}
    for name, prepare in variants.items():
        try:
            timed[name] = prepare()
        except Exception as fault:  # a variant that fails must not stop the others
            failed[name] = f"{type(fault).__name__}: {fault}"[:500]
    print(json.dumps({"ready": list(timed), "failed": failed} | facts), flush=True)
    for line in sys.stdin:
        try:
            row = timed[line.strip()]()
        except Exception as fault:
            row = {"error": f"{type(fault).__name__}: {fault}"[:500]}
        print(json.dumps(row), flush=True)
