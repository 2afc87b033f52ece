#!/usr/bin/env python3
"""Runs a bench of two builds in turns and prints how the second one differs from the first.

    bench/compare_builds.py before/build after/build [--rounds 7] [--at-most 1.01] -- \
        bench_step --models mlp --rounds 3

Both benches print one line of JSON at their end. Every number in it is compared round by round, so
that what else the machine does hits both builds alike; printed is the median of the ratios (after /
before) and the range of their middle half. --at-most makes the script fail where a median is above
it; where more is better (throughputs), --at-least does so. The last line is one JSON object.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys


def numbers_of(value, name=""):
    """The numbers of a JSON value, by their dotted names."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_of(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield name, float(value)


def run(build, command):
    program = pathlib.Path(build).resolve() / "bin" / command[0]
    done = subprocess.run([program, *command[1:]], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{program} ended with code {done.returncode}:\n{done.stdout}")
    return dict(numbers_of(json.loads(done.stdout.splitlines()[-1])))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="names to look at: a regular expression")
    parser.add_argument("--at-most", type=float)
    parser.add_argument("--at-least", type=float)
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()

    ratios = {}
    for turn in range(asked.rounds):
        builds = [asked.before, asked.after]
        first, second = builds if turn % 2 == 0 else reversed(builds)  # neither is always first
        found = {first: run(first, asked.command)}
        found[second] = run(second, asked.command)
        for name, before in found[asked.before].items():
            after = found[asked.after].get(name)
            if after is None or before == 0 or not re.search(asked.only, name):
                continue
            ratios.setdefault(name, []).append(after / before)
        print(f"round {turn + 1} of {asked.rounds}", file=sys.stderr, flush=True)

    failed = []
    medians = {}
    for name, each in ratios.items():
        medians[name] = round(statistics.median(each), 4)
        low, _, high = statistics.quantiles(each, n=4) if len(each) > 1 else each * 3
        print(f"{name:40} {medians[name]:.3f}  ({low:.3f} .. {high:.3f})")
        too_high = asked.at_most is not None and medians[name] > asked.at_most
        too_low = asked.at_least is not None and medians[name] < asked.at_least
        if too_high or too_low:
            failed.append(name)
    print(json.dumps(medians))
    if failed:
        sys.exit("out of bounds: " + ", ".join(failed))


if __name__ == "__main__":
    main()
