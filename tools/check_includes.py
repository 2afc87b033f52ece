#!/usr/bin/env python3
"""Holds the table "who may include whom" and the form of source files.

    tools/check_includes.py [root]

The folders of src/ share one include root, so a compiler lets any header through; this check does
not. Nor does a compiler see that two files give one name to two types: the linker then keeps one of
each inline function, and whoever uses the other type runs into it. Pages and headers that text or a
comment names exist, and so do the headings that links go to. It prints one line for each fault, as
file:line: text, and fails if there is one.
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
    'amp': 'capture',
    'cost': 'ops ir layout',
    'sharding': 'cost ops ir layout',
    'passes': 'sharding cost ops ir layout',
    'program': 'layout',
    'comm': '',
    'state': 'comm program ir layout',
    'plan': 'program cost ops ir layout',
    'search': 'plan program cost ops ir layout',
    'compile': 'capture passes sharding cost plan state program ops ir layout',
    'runtime': 'state program comm layout',
    'calibrate': 'runtime comm cost ops ir layout',
    'model': 'runtime state capture ops ir layout',
    'batch': 'model compile capture program ops ir layout',
    'job': 'batch model runtime state comm program layout',
    'offload': 'job model compile runtime state program ir layout',
    'footprint': 'offload job compile model runtime state capture comm program ir layout',
    'plain': 'batch model runtime comm capture',
    'verify': 'batch model runtime state comm compile program ops ir layout',
    'sim': 'program',
    'report': 'program',
    'checkpoint': '',
    'checkpoint_tool': 'checkpoint',
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

LINK = re.compile(r'\]\(([^)\s#]*)(?:#([^)\s]*))?\)')
NAMED = re.compile(r'(?<![\w/.:<-])[\w./-]*\w\.(?:md|h)\b')
HEADING = re.compile(r'#+ +(.*)')
COMMENT = re.compile(r'(?:^|\s)//(.*)')


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


def anchors(page):
    """What links to the headings of a page end with, as GitHub makes it."""
    headings = filter(None, map(HEADING.match, page.read_text(encoding='utf-8').splitlines()))
    return {re.sub(r'[^\w -]', '', heading[1].lower()).strip().replace(' ', '-')
            for heading in headings}


def fault_of_link(root, path, target, anchor):
    """What is wrong with a link in a page, or None."""
    if target.startswith(('http:', 'https:', 'mailto:')):
        return None
    page = (root / path).parent / target if target else root / path
    if not page.exists():
        return f'a link to {target}, which does not exist'
    if anchor and anchor not in anchors(page):
        return f'a link to #{anchor}, which is no heading of {target or "this page"}'
    return None


def fault_of_name(root, path, name, known):
    """What is wrong with naming a page or header in text, or None."""
    if name.startswith(TORCH):
        return None
    there = any((folder / name).exists() for folder in (root, (root / path).parent))
    if name.endswith('.h'):
        there = there or any(f'/{file}'.endswith(f'/{name}') for file in known)
    return None if there else f'{name} is named, and does not exist'


def faults_of_names_in_text(root, path, known):
    """Yields (line, text) for a page, or for the comments of a source."""
    is_page = path.suffix == '.md'
    is_code = False
    for number, line in enumerate((root / path).read_text(encoding='utf-8').splitlines(), start=1):
        is_code ^= is_page and line.startswith('```')
        text = line if is_page else ' '.join(COMMENT.findall(line))
        if is_code or not text:
            continue
        for target, anchor in LINK.findall(text) if is_page else ():
            if fault := fault_of_link(root, path, target, anchor):
                yield number, fault
        for name in NAMED.findall(LINK.sub(']', text)):
            if fault := fault_of_name(root, path, name, known):
                yield number, fault


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
    pages = sorted(path.relative_to(root) for pattern in ('*.md', 'docs/**/*.md', 'examples/**/*.md')
                   for path in root.glob(pattern))
    found += [f'{path}:{line}: {text}' for path in pages + files
              for line, text in faults_of_names_in_text(root, path, files)]
    print('\n'.join(found + [f'check_includes: {len(files)} files, {len(pages)} pages, '
                             f'{len(found)} faults']))
    return 1 if found or not files else 0


if __name__ == '__main__':
    sys.exit(main())
