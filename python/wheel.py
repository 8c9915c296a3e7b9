#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs a wheel that needs no compiler and no installed Kasane: `wheel.py BUILD CORE FOLDER`.

BUILD: the build folder of CMake, from whose installation the library, the command and the MPI modules are
taken. CORE: the package's C++ part, built for one Python. What these need beside the C library and the
compiler's comes with them, and its licences: `make wheel`.
"""
import base64
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

# Of every system, as PEP 600 has it.
SYSTEMS = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s))\.so")
HERE = os.path.dirname(os.path.realpath(__file__))


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(elf):
    """Files of the libraries that an ELF file needs, directly or not."""
    found = re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", elf), re.MULTILINE)
    return {name: path for name, path in found if not SYSTEMS.match(name)}


def copy_libraries(elfs, folder):
    """The libraries that files need, beside each other; returns where they were."""
    origins = {}
    for elf in elfs:
        for name, path in needed(elf).items():
            if name not in origins and not name.startswith("libkasane"):
                origins[name] = os.path.realpath(path)
                shutil.copy(origins[name], os.path.join(folder, name))
    return sorted(origins.values())


def add_licences(files, folder):
    """Those of Debian's packages that files come from, and ours."""
    os.makedirs(folder)
    for name in ("LICENSE", "THIRD_PARTY.md"):
        shutil.copy(os.path.join(HERE, "..", name), folder)
    for file in files:
        for name in (file, file.replace("/usr/lib", "/lib", 1)):  # before and after the merge of /usr
            said = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True, check=False).stdout
            if said:
                package = said.split(":")[0]
                licence = f"/usr/share/doc/{package}/copyright"
                shutil.copy(licence, os.path.join(folder, package + ".copyright"))
                break
        else:
            sys.exit(f"wheel: no package has {file}, so its licence is not known")


def platform(folder):
    """The tag of the oldest C library with which all files run."""
    versions = [(2, 17)]
    for file in elf_files(folder):
        found = re.findall(r"GLIBC_(\d+)\.(\d+)", output("objdump", "-T", file))
        versions += [(int(major), int(minor)) for major, minor in found]
    return "manylinux_{}_{}_{}".format(*max(versions), os.uname().machine)


def elf_files(folder):
    for path, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(path, name)
            with open(file, "rb") as f:
                if f.read(4) == b"\x7fELF":
                    yield file


def write(root, path, text):
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    with open(os.path.join(root, path), "w", encoding="utf-8") as f:
        f.write(text)


def gather(build, core, root):
    """The package with all that it needs."""
    stage, package = os.path.join(root, "stage"), os.path.join(root, "wheel", "kasane")
    for part in ("runtime", "openmpi", "mpich"):
        output("cmake", "--install", build, "--prefix", stage, "--component", part)
    os.makedirs(os.path.join(package, "lib", "kasane"))
    os.makedirs(os.path.join(package, "bin"))
    for pattern in ("*.py", "*.pyi", "py.typed"):
        for file in glob.glob(os.path.join(HERE, "kasane", pattern)):
            shutil.copy(file, package)
    library, = {os.path.realpath(f) for f in glob.glob(os.path.join(stage, "lib*", "libkasane.so.*"))}
    version = library.split(".so.")[1]
    own = os.path.join(package, "lib", "libkasane.so." + ".".join(version.split(".")[:2]))
    shutil.copy(library, own)
    command = shutil.copy(glob.glob(os.path.join(stage, "bin", "kasane"))[0], os.path.join(package, "bin"))
    for module in glob.glob(os.path.join(stage, "lib*", "kasane", "*")):
        shutil.copy(module, os.path.join(package, "lib", "kasane"))
    part = shutil.copy(core, package)
    return package, part, command, own, version


def main(build, core, folder):
    if shutil.which("patchelf") is None:
        sys.exit("wheel: patchelf is needed (Debian: patchelf)")
    with tempfile.TemporaryDirectory() as root:
        package, part, command, own, version = gather(build, core, root)
        libraries = os.path.join(package, "lib")
        copied = copy_libraries([core, command, own], libraries)
        for file in elf_files(package):
            above = os.path.relpath(libraries, os.path.dirname(file))
            output("patchelf", "--set-rpath", os.path.normpath("$ORIGIN/" + above), file)
            output("strip", "--strip-unneeded", file)
        info = f"kasane-{version}.dist-info"
        add_licences(copied, os.path.join(root, "wheel", info, "licenses"))
        python = "cp" + re.search(r"cpython-(\d+)", os.path.basename(part)).group(1)
        tag = f"{python}-{python}-{platform(package)}"
        pack(os.path.join(root, "wheel"), info, version, tag, python, folder)


def pack(root, info, version, tag, python, folder):
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as f:
        summary = re.search(r'^description = "(.*)"', f.read(), re.MULTILINE).group(1)
    write(
    root,
    f"{info}/METADATA",
    f"Metadata-Version: 2.1\nName: kasane\nVersion: {version}\nSummary: {summary}\n"
    f"License: Apache-2.0\nRequires-Python: =={python[2]}.{python[3:]}.*\nRequires-Dist: numpy\n"
    "Provides-Extra: mpi\nRequires-Dist: mpi4py; extra == 'mpi'\n")
    write(
    root,
    f"{info}/WHEEL",
     f"Wheel-Version: 1.0\nGenerator: kasane\nRoot-Is-Purelib: false\nTag: {tag}\n")
    write(root, f"{info}/entry_points.txt", "[console_scripts]\nkasane = kasane._command:main\n")
    os.makedirs(folder, exist_ok=True)
    file, record = os.path.join(folder, f"kasane-{version}-{tag}.whl"), []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, _, names in sorted(os.walk(root)):
            for name in sorted(names):
                full = os.path.join(path, name)
                inside = os.path.relpath(full, root)
                with open(full, "rb") as f:
                    content = f.read()
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                record.append(f"{inside},sha256={digest},{len(content)}")
                archive.write(full, inside)
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]))
    print(f"{file}: {os.path.getsize(file) >> 20} MiB")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
