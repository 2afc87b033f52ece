#!/usr/bin/env python3
"""Holds the table "who may include whom" and the form of source files.

    tools/check_includes.py [root]

The folders of src/ share one include root, so a compiler lets any header through; this check does
not. Nor does a compiler see that two files give one name to two types: the linker then keeps one of
each inline function, and whoever uses the other type runs into it. It prints one line for each fault,
as file:line: text, and fails if there is one.
"""
import pathlib
import re
import sys

# Folder of src/ -> the folders it may include besides itself, `base` and VALUE_HEADERS.
# In the order in which the data flows: a row names only folders above it.
MAY_INCLUDE = {
    'base': '',
    'config': '',
    'layout': '',
    'ir': 'layout',
    'ops': 'ir layout',
    'capture': 'ops ir layout',  # what an operator writes or draws is known in ops alone
    'cost': 'ops ir layout',
    'sharding': 'cost ops ir layout',
    'passes': 'sharding cost ops ir layout',
    'program': 'layout',
    'plan': 'program cost ops ir layout',
    'comm': '',
    'state': 'layout',
    'runtime': 'state program comm layout',
    'sim': 'program',
    'report': 'program',
    'checkpoint': 'layout comm',
    'io': '',
    'launch': '',
}
MAY_INCLUDE['driver'] = ' '.join(MAY_INCLUDE)

# Values that every folder may know. Which other public headers a folder names is its own matter,
# except that only `driver` knows the trainer.
VALUE_FOLDER = 'config'
DRIVER_HEADERS = {'epl/epl.h', 'epl/trainer.h'}

# Folders that know nothing of LibTorch. (layout names element types by c10::ScalarType; io makes
# samplers for torch::data.)
NO_TORCH = {'base', 'sim', 'report', 'launch'}
TORCH = ('torch/', 'ATen/', 'c10/')

MAX_LINES = 600
LONG_FILES = {}  # path -> why it is longer

INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')
NAMESPACE = re.compile(r'namespace\s*([\w:]*)\s*{')
END_OF_NAMESPACE = re.compile(r'}\s*//\s*namespace')
TYPE = re.compile(r'(?:struct|class|enum|enum class)\s+(\w+)(?:\s+final)?\s*(?::[^:;][^;]*)?{')


def fault_of_include(path, quote, header):
    """What is wrong with `path` including `header`, or None."""
    place, folder = path.parts[0], path.parts[1]
    target = header.split('/')[0]
    if '..' in header.split('/'):
        return 'an include names a path from the include root, not ".."'
    if place in ('include', 'examples'):
        return f'{place}/ knows only <epl/...>, not src/{target}' if target in MAY_INCLUDE else None
    if place != 'src' or path.stem.endswith('_test'):
        return None
    if folder not in MAY_INCLUDE:
        return f'src/{folder} has no row in MAY_INCLUDE'
    if header in DRIVER_HEADERS and folder != 'driver':
        return f'{folder} may not include <{header}>: only driver knows the trainer'
    if folder in NO_TORCH and header.startswith(TORCH):
        return f'{folder} may not include LibTorch (<{header}>)'
    if folder == 'passes' and target == 'passes' and pathlib.Path(header).stem != path.stem:
        return f'a pass may not include another ({header})'
    if quote == '<':
        return f'write #include "{header}"' if target in MAY_INCLUDE else None
    if target not in MAY_INCLUDE:
        return f'"{header}" is in no folder of src/; public and system headers stand in <>'
    allowed = {folder, 'base', VALUE_FOLDER, *MAY_INCLUDE[folder].split()}
    if folder == 'base':
        allowed.remove(VALUE_FOLDER)
    if target not in allowed:
        return f'{folder} may not include {target} ({header})'
    return None


def types(root, path):
    """Yields (full name, line) of the types that other files see: of those in named namespaces."""
    outer = []
    for number, line in enumerate((root / path).read_text(encoding='utf-8').splitlines(), start=1):
        if namespace := NAMESPACE.match(line):
            outer.append(namespace[1])
        elif END_OF_NAMESPACE.match(line) and outer:
            outer.pop()
        elif (found := TYPE.match(line)) and outer and all(outer):
            yield '::'.join([*outer, found[1]]), number


def faults_of_names(root, files):
    """Yields (path, line, text)."""
    places = {}
    for path in files:
        for name, line in types(root, path):
            if name in places:
                yield path, line, f'{name} is another type in {places[name]}: rename one of them'
            places.setdefault(name, f'{path}:{line}')


def faults(root, path):
    """Yields (line, text)."""
    lines = (root / path).read_text(encoding='utf-8').splitlines()
    if len(lines) > MAX_LINES and str(path) not in LONG_FILES:
        yield len(lines), f'longer than {MAX_LINES} lines: split it, or say why not in LONG_FILES'
    if path.suffix == '.h' and '#pragma once' not in lines:
        yield 1, 'a header without #pragma once'
    for number, line in enumerate(lines, start=1):
        include = INCLUDE.match(line)
        text = include and fault_of_include(path, *include.groups())
        if text:
            yield number, text


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]
    places = ('include', 'src', 'examples', 'bench', 'tests', 'tools')
    files = sorted(path.relative_to(root) for place in places
                   for path in (root / place).rglob('*') if path.suffix in ('.h', '.cc'))
    found = [f'{path}:{line}: {text}' for path in files for line, text in faults(root, path)]
    found += [f'{path}:{line}: {text}' for path, line, text in faults_of_names(root, files)]
    print('\n'.join(found + [f'check_includes: {len(files)} files, {len(found)} faults']))
    return 1 if found or not files else 0


if __name__ == '__main__':
    sys.exit(main())
