#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The linker of the same name, which looks for libraries first in the folder above this one. GCC finds this by
# COMPILER_PATH. (LIBRARY_PATH comes after the system's folders and after every -L.)
exec "${0##*/}" -L"${0%/*}/.." "$@"
