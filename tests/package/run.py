#!/usr/bin/env python3
"""First contact, as README.md tells it: install EPL, build a program of one's own, run it.

    run.py --source DIR --build DIR --work DIR --compiler CXX [--launcher ccache] [--sanitize KINDS]

The program, the lines for its CMakeLists.txt and what it prints are those of README.md, so that none
of them can go out of date.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

# Of a printed loss: other processors and other numbers of workers sum in another order.
TOLERANCE = 1e-4


def run(*words, **options):
    print('+', *words, flush=True)
    return subprocess.run([str(word) for word in words], check=True, **options)


def printed_by(*words, cwd, env=None):
    return run(*words, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True).stdout


def block(readme, language, behind=''):
    """The first ``` block of a language; "" is one that names none."""
    text = readme[readme.index(behind):]
    return re.search(r'^```' + language + r'\n(.*?)^```$', text, re.M | re.S).group(1)


def check_quickstart_builds_what_is_installed(source, build):
    """`cmake --install build` works after quickstart.sh, which builds some targets only."""
    targets = re.search(r'^tools/build\.sh (.+)$', (source / 'quickstart.sh').read_text(), re.M)
    commands = subprocess.run(['ninja', '-C', build, '-t', 'commands', *targets.group(1).split()],
                              check=True, stdout=subprocess.PIPE, text=True).stdout
    script = (build / 'cmake_install.cmake').read_text()
    for path in re.findall(r'"' + re.escape(str(build)) + r'/((?:bin|lib)/[^"]+)"', script):
        if not re.search(r'(?<!\S)' + re.escape(path) + r'(?!\S)', commands):
            sys.exit(f'`cmake --install` wants {path}, but quickstart.sh builds {targets.group(1)}')


def check_losses(who, printed, expected):
    print(f'{who}:\n{printed}', flush=True)
    found, wanted = ([float(line) for line in text.split()] for text in (printed, expected))
    near = len(found) == len(wanted) and all(
        abs(a - b) <= TOLERANCE for a, b in zip(found, wanted))
    if not near:
        sys.exit(f'README.md says that its program prints\n{expected}but {who} it prints\n{printed}')


def check_files(who, folder, expected):
    """One network was saved, and nothing else is left."""
    names = sorted(path.name for path in folder.iterdir())
    if names != expected:
        sys.exit(f'{who} the program of README.md leaves {names}, not {expected}')


def check_launcher_line(readme):
    line = 'epl-launch --num_workers 2 ./train'
    if line not in readme:
        sys.exit(f'README.md no longer has the line {line}, which this test runs')
    return line.split()[1:-1]


def main():
    parser = argparse.ArgumentParser()
    for name in ('source', 'build', 'work'):
        parser.add_argument('--' + name, type=pathlib.Path, required=True)
    parser.add_argument('--compiler', required=True)
    parser.add_argument('--launcher', default='')
    parser.add_argument('--sanitize', default='')
    options = parser.parse_args()
    work = options.work
    readme = (options.source / 'README.md').read_text()
    check_quickstart_builds_what_is_installed(options.source, options.build)

    # Anew each time: files left by an earlier version would hide one that is no longer installed.
    for name in ('prefix', 'build', 'alone', 'launched'):
        shutil.rmtree(work / name, ignore_errors=True)
    for name in ('alone', 'launched'):
        (work / name).mkdir(parents=True)
    (work / 'train.cc').write_text(block(readme, 'cpp'))
    (work / 'lines.cmake').write_text(block(readme, 'cmake'))
    prefix = work / 'prefix'
    run('cmake', '--install', options.build, '--prefix', prefix, stdout=subprocess.DEVNULL)

    # The user's project gets the prefix and nothing else of this build.
    run('cmake', '-S', options.source / 'tests/package/user', '-B', work / 'build', '-G', 'Ninja',
        '-D', f'CMAKE_PREFIX_PATH={prefix}', '-D', f'PROGRAM={work}/train.cc',
        '-D', f'LINES={work}/lines.cmake', '-D', f'CMAKE_CXX_COMPILER={options.compiler}',
        '-D', f'CMAKE_CXX_COMPILER_LAUNCHER={options.launcher}', '-D',
        'CMAKE_CXX_FLAGS=' + (f'-fsanitize={options.sanitize}' if options.sanitize else ''))
    run('cmake', '--build', work / 'build')

    program = work / 'build/my_program'
    expected = block(readme, '', behind='\nprints')
    check_losses('alone', printed_by(program, cwd=work / 'alone'), expected)
    check_files('alone', work / 'alone', ['net.pt'])
    devices = dict(os.environ, EPL_DEVICES='2')
    check_losses('on two devices', printed_by(program, cwd=work / 'alone', env=devices), expected)
    # --debug shows what all workers print.
    launched = printed_by(prefix / 'bin/epl-launch', *check_launcher_line(readme), '--debug', program,
                          cwd=work / 'launched')
    lines = [line for line in launched.splitlines(keepends=True) if line.startswith('[worker ')]
    check_losses('under epl-launch', ''.join(line.split('] ', 1)[1] for line in lines), expected)
    check_files('under epl-launch', work / 'launched', ['epl-logs', 'net.pt'])


if __name__ == '__main__':
    main()
