# SPDX-License-Identifier: Apache-2.0
"""Builds the C++ part against an installed Kasane: `pip install .`, where pkg-config finds kasane-attach, by
PKG_CONFIG_PATH, or below a folder of CMAKE_PREFIX_PATH."""
import glob
import os
import re
import shlex
import subprocess
import sys

from pybind11.setup_helpers import Pybind11Extension, build_ext
from setuptools import setup


def folders_of_prefixes():
    prefixes = re.split("[:;]", os.environ.get("CMAKE_PREFIX_PATH", "")) + [sys.prefix, "/usr/local"]
    below = ("lib*/pkgconfig", "lib*/*/pkgconfig", "share/pkgconfig")
    return [folder for prefix in prefixes if prefix for pattern in below
            for folder in glob.glob(os.path.join(glob.escape(prefix), pattern))]


def pkg_config(package, *what):
    paths = [p for p in os.environ.get("PKG_CONFIG_PATH", "").split(":") if p] + folders_of_prefixes()
    environment = dict(os.environ, PKG_CONFIG_PATH=":".join(paths))
    try:
        done = subprocess.run(["pkg-config", *what, package], env=environment, capture_output=True, text=True,
                              check=False)
    except FileNotFoundError:
        sys.exit("kasane: pkg-config is needed (Debian: pkg-config)")
    return shlex.split(done.stdout) if done.returncode == 0 else None


flags, libraries = pkg_config("kasane-attach", "--cflags"), pkg_config("kasane-attach", "--libs")
if libraries is None:
    sys.exit("kasane: no installed Kasane is found. Install it (make install PREFIX=…), and name the "
             "prefix: CMAKE_PREFIX_PATH=PREFIX pip install .")
version = "".join(pkg_config("kasane-attach", "--modversion"))
for blas in ("openblas", "flexiblas", "cblas"):
    of_blas = pkg_config(blas, "--libs")
    if of_blas is not None:
        break
else:
    print("kasane: no BLAS (Debian: libopenblas-dev): a @ b will be refused", file=sys.stderr)

setup(
    version=version,
    cmdclass={"build_ext": build_ext},
    ext_modules=[
        Pybind11Extension(
            "kasane._core", ["kasane/_core.cpp"], cxx_std=20,
            define_macros=[("KASANE_HAVE_BLAS", None)] if of_blas is not None else [],
            extra_compile_args=["-O2", *flags], extra_link_args=[*libraries, *(of_blas or [])])
    ],
)
