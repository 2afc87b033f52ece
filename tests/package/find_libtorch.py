#!/usr/bin/env python3
"""A LibTorch outside of the system's folders is found, and used as it was built.

    find_libtorch.py --source DIR --work DIR

The folders are those of pytorch.org's zips, with what cmake/LibTorch.cmake reads in them and no more:
a zip has 200 MB. Both ways to name the folder are taken, for each release whose headers differ there.
"""
import argparse
import dataclasses
import pathlib
import re
import shutil
import subprocess
import sys

API = 'include/torch/csrc/api/include/torch'


@dataclasses.dataclass
class Zip:
    version: str
    version_header: str
    standard: int
    new_abi: int  # of the standard library; -1: TorchConfig.cmake names none

    def unpack(self, folder):
        numbers = zip(('MAJOR', 'MINOR'), self.version.split('.'))
        version = ''.join(f'#define TORCH_VERSION_{name} {number}\n' for name, number in numbers)
        least = {17: '201703L', 20: '202002L'}[self.standard]
        files = {
            'include/ATen/ATen.h': f'#if !defined(_MSC_VER) && __cplusplus < {least}\n',
            f'{API}/torch.h': '',
            f'{API}/version.h': '#include <torch/headeronly/version.h>\n',
            self.version_header: version,  # where that is the one above, in place of it
            'share/cmake/Torch/TorchConfig.cmake': f'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI='
                                                   f'{self.new_abi}")\n' if self.new_abi >= 0 else '',
            **{f'lib/lib{name}.so': '' for name in ('torch', 'torch_cpu', 'c10')},
        }
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)

    def expected(self, folder):
        libraries = ';'.join(f'{folder}/lib/lib{name}.so' for name in ('torch', 'torch_cpu', 'c10'))
        flag = '_GLIBCXX_USE_CXX11_ABI=0' if self.new_abi == 0 else 'value-NOTFOUND'
        return [
            f'version {self.version}', f'standard {self.standard}',
            f'INCLUDE_DIRECTORIES {folder}/include/torch/csrc/api/include;{folder}/include',
            f'COMPILE_DEFINITIONS {flag}', f'LINK_LIBRARIES {libraries}'
        ]


ZIPS = [
    Zip('1.13', f'{API}/version.h', 17, 0),
    Zip('2.6', f'{API}/version.h', 17, 0),
    Zip('2.6', f'{API}/version.h', 17, 1),
    Zip('2.14', 'include/torch/headeronly/version.h', 20, -1),
]


def found(source, build, named):
    shutil.rmtree(build, ignore_errors=True)
    words = ['cmake', '-G', 'Ninja', '-S', f'{source}/tests/package/find_libtorch', '-B', str(build),
             '-D', f'EPL_SOURCE={source}', '-D', named]
    print('+', *words, flush=True)
    printed = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    return re.findall(r'^-- ((?:version|standard|[A-Z_]+) .*)$', printed, re.M)


def main():
    parser = argparse.ArgumentParser()
    for name in ('source', 'work'):
        parser.add_argument('--' + name, type=pathlib.Path, required=True)
    options = parser.parse_args()
    for each in ZIPS:
        folder = options.work / 'libtorch'
        shutil.rmtree(folder, ignore_errors=True)
        each.unpack(folder)
        for named in (f'CMAKE_PREFIX_PATH={folder}', f'Torch_DIR={folder}/share/cmake/Torch'):
            lines = found(options.source, options.work / 'find', named)
            if lines != each.expected(folder):
                sys.exit('\n  '.join([f'{each} by {named} is found as', *lines, 'and not as',
                                      *each.expected(folder)]))


if __name__ == '__main__':
    main()
