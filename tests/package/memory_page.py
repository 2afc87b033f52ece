#!/usr/bin/env python3
"""docs/memory.md opens with a program: what the page says that it prints is what it prints.

    memory_page.py --source DIR --program build/bin/large_model --work DIR

Words are compared as they are, names of operators aside; numbers within a tolerance, since kernels of other processors
and versions of LibTorch take other workspaces and sum in another order. The lines of C++ on the page are lines of
the program, and the picture beside it has the words of the one that is written.
"""
import argparse
import pathlib
import re
import subprocess
import sys

TOLERANCE = 0.15
PICTURE_BYTES = 40_000
# How much of a file is in memory at once depends on the disk, and never is more than the forecast.
MEASURED = re.compile(r'measured|by the system')
NUMBER = re.compile(r'\d+(?:\.\d+)?')


def block(page, language, behind):
    """The first ``` block of a language behind some words; "" is one that names none."""
    text = page[page.index(behind):]
    return re.search(r'^```' + language + r'\n(.*?)^```$', text, re.M | re.S).group(1)


def words_of(line):
    """A line without its numbers and operators, and with one space in each gap."""
    line = re.sub(r'aten::[\w.]+', 'aten::*', line)
    line = re.sub(r'code \S*examples/', 'code examples/', line)  # as the compiler was given it
    return ' '.join(NUMBER.sub('#', line).split())


def numbers_of(line):
    return NUMBER.findall(re.sub(r'code \S*examples/|:\d+\)', '', line))


def check_lines(what, found, wanted):
    if [words_of(line) for line in found] != [words_of(line) for line in wanted]:
        sys.exit(f'{what} has\n' + '\n'.join(wanted) + '\nbut it is\n' + '\n'.join(found))
    for is_line, says_line in zip(found, wanted):
        if MEASURED.search(says_line):
            continue
        for is_number, says in zip(numbers_of(is_line), numbers_of(says_line)):
            if abs(float(is_number) - float(says)) > TOLERANCE * max(float(says), 1):
                sys.exit(f'{what} says\n{says_line}\nbut it is\n{is_line}')


def texts_of(picture):
    return re.findall(r'<text[^>]*>([^<]*)</text>', picture)


def main():
    parser = argparse.ArgumentParser()
    for name in ('source', 'program', 'work'):
        parser.add_argument('--' + name, type=pathlib.Path, required=True)
    options = parser.parse_args()
    page = (options.source / 'docs/memory.md').read_text()
    command = 'build/bin/large_model\n'
    if command not in page:
        sys.exit(f'docs/memory.md no longer has the command {command}, which this test runs')

    source = (options.source / 'examples/large_model.cc').read_text()
    lines = {' '.join(line.split()) for line in source.splitlines()}
    for line in block(page, 'cpp', behind='large_model').splitlines():
        code = ' '.join(re.sub(r'\s*//.*', '', line).split())
        if code and not any(code in each for each in lines):
            sys.exit(f'docs/memory.md has a line of examples/large_model.cc that is not there: {line}')

    options.work.mkdir(parents=True, exist_ok=True)
    printed = subprocess.run([options.program], cwd=options.work, check=True,
                             stdout=subprocess.PIPE, text=True).stdout
    print(printed, flush=True)
    check_lines('docs/memory.md', printed.splitlines(),
                block(page, '', behind='\nprints').splitlines())

    beside = (options.source / 'docs/memory.svg').read_text()
    if len(beside) > PICTURE_BYTES:
        sys.exit(f'docs/memory.svg has {len(beside)} bytes, more than {PICTURE_BYTES}')
    made = (options.work / 'memory.svg').read_text()
    check_lines('docs/memory.svg', texts_of(made), texts_of(beside))


if __name__ == '__main__':
    main()
