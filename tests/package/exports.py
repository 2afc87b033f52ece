#!/usr/bin/env python3
"""libepl.so shows the names of include/epl and no others.

    exports.py --source DIR --library libepl.so

A name that is shown by mistake takes the place of a program's own, or gives way to it, silently.
"""
import argparse
import pathlib
import re
import subprocess
import sys

FUNCTION = re.compile(r'^(?!inline|constexpr)\w[\w:<>,&* ]* (\w+)\(', re.M)  # not of a class
OF_EPL = re.compile(r'(?:^|\s)epl::(\w+)')


def shown(library):
    """The names that the library defines for others, as C++ writes them."""
    text = subprocess.run(['nm', '-DC', '--defined-only', library], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return [line.split(' ', 2)[2] for line in text.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--source', type=pathlib.Path, required=True)
    parser.add_argument('--library', required=True)
    asked = parser.parse_args()
    headers = ''.join(path.read_text() for path in (asked.source / 'include/epl').glob('*.h'))
    names = shown(asked.library)
    faults = []
    for name in names:
        found = OF_EPL.search(name)
        if found is None or '::Impl' in name or not re.search(rf'\b{found[1]}\b', headers):
            faults.append(f'shown, but in no header of include/epl: {name}')
    missing = [name for name in FUNCTION.findall(headers)
               if not any(shown_one.startswith(f'epl::{name}(') for shown_one in names)]
    faults += [f'{name}, which a header declares, is not shown' for name in missing]
    print('\n'.join(faults + [f'exports: {len(names)} names, {len(faults)} faults']))
    # A library that shows nothing at all is no better.
    return 1 if faults or not any('epl::Trainer::step' in name for name in names) else 0


if __name__ == '__main__':
    sys.exit(main())
