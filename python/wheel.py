#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs a wheel that needs no compiler and no installed Kasane: `wheel.py BUILD CORE FOLDER [PYTHON…]`.

BUILD: the build folder of CMake, from whose installation the library, the command and the MPI modules are
taken. CORE: the package's C++ part, built for one Python. PYTHON: others, for which pip builds it (with a
network, for pybind11); "found": 3.10 to 3.13 on the PATH or of pyenv. One wheel is for all of them: each
loads its own part. What these need beside the C library and the compiler's comes with them, and its licences.
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


VERSIONS = ("3.10", "3.11", "3.12", "3.13")
ABOUT = """import os, sys, sysconfig
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
print("%d.%d" % sys.version_info[:2], os.path.exists(header))"""


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def version_of(python):
    """Of an interpreter that can be built for, "3.12"; else None."""
    try:
        version, headers = output(python, "-c", ABOUT).split()
    except (OSError, subprocess.CalledProcessError):  # a shim for a Python that is not there
        return None
    return version if headers == "True" else None


def found_pythons():
    """Interpreters of VERSIONS, by version."""
    found = {}
    for version in VERSIONS:
        of_pyenv = os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python3")
        for python in (f"/usr/bin/python{version}", shutil.which(f"python{version}"), *glob.glob(of_pyenv)):
            if version not in found and python and version_of(python) == version:
                found[version] = python
    return found


def tag_of(core):
    """Of the Python that loads a C++ part: "cp312"."""
    return "cp" + re.search(r"cpython-(\d+)", os.path.basename(core)).group(1)


def built_by_pip(python, prefix, folder):
    """The C++ part for an interpreter, from the sources in a prefix."""
    sources = os.path.join(folder, "sources")
    shutil.copytree(os.path.join(prefix, "share", "kasane", "python"), sources)  # which setuptools writes to
    environment = {**os.environ, "CMAKE_PREFIX_PATH": prefix}
    try:
        output(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, sources, env=environment)
    except subprocess.CalledProcessError as failure:
        sys.exit(f"wheel: no C++ part for {python}; name those that are wanted, make wheel PYTHONS=…\n"
                 f"{failure.stderr[-2000:]}")
    with zipfile.ZipFile(*glob.glob(os.path.join(folder, "*.whl"))) as archive:
        core, = (name for name in archive.namelist() if re.search(r"_core\..*\.so$", name))
        return archive.extract(core, folder)


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


def gather(build, cores, pythons, root):
    """The package with all that it needs."""
    stage, package = os.path.join(root, "stage"), os.path.join(root, "wheel", "kasane")
    for part in ("runtime", "openmpi", "mpich", *(["devel"] if pythons else [])):
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
    for k, python in enumerate(pythons):
        if f"cp{version_of(python).replace('.', '')}" not in map(tag_of, cores):
            cores = [*cores, built_by_pip(python, stage, os.path.join(root, f"pip{k}"))]
    for core in cores:
        shutil.copy(core, package)
    return package, cores, command, own, version


def main(build, core, folder, *pythons):
    if shutil.which("patchelf") is None:
        sys.exit("wheel: patchelf is needed (Debian: patchelf)")
    pythons = list(found_pythons().values()) if pythons == ("found",) else pythons
    for python in pythons:
        if version_of(python) is None:
            sys.exit(f"wheel: {python} does not run, or has no Python.h")
    with tempfile.TemporaryDirectory() as root:
        package, cores, command, own, version = gather(build, [core], pythons, root)
        libraries = os.path.join(package, "lib")
        copied = copy_libraries([*cores, command, own], libraries)
        for file in elf_files(package):
            from_here = os.path.relpath(libraries, os.path.dirname(file))
            output("patchelf", "--set-rpath", "$ORIGIN/" + from_here, file)
            output("strip", "--strip-unneeded", file)
        info = f"kasane-{version}.dist-info"
        add_licences(copied, os.path.join(root, "wheel", info, "licenses"))
        tags = sorted(map(tag_of, cores), key=lambda tag: int(tag[3:]))
        pack(os.path.join(root, "wheel"), info, version, tags, platform(package), folder)


def pack(root, info, version, tags, system, folder):
    tag = f"{'.'.join(tags)}-{'.'.join(tags)}-{system}"
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as f:
        summary = re.search(r'^description = "(.*)"', f.read(), re.MULTILINE).group(1)
    write(
    root,
    f"{info}/METADATA",
    f"Metadata-Version: 2.1\nName: kasane\nVersion: {version}\nSummary: {summary}\n"
    f"License: Apache-2.0\nRequires-Python: >={tags[0][2]}.{tags[0][3:]}\nRequires-Dist: numpy\n"
    "Provides-Extra: mpi\nRequires-Dist: mpi4py; extra == 'mpi'\n")
    write(
    root,
    f"{info}/WHEEL",
    "Wheel-Version: 1.0\nGenerator: kasane\nRoot-Is-Purelib: false\n"
    + "".join(f"Tag: {t}-{t}-{system}\n" for t in tags))
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
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
