# SPDX-License-Identifier: Apache-2.0
"""The wheel in environments of its own: `wheel_test.py BUILD CORE FOLDER [ranks] [PYTHON…]`. The programs of
the guide run there, alone and, with `ranks`, on two; what is loaded comes from the environment.

The system's Python uses the system's NumPy. PYTHON: other interpreters, or `found`, all that make wheel
finds, or `newest`, the last of them. pip fetches pybind11 and NumPy for them; where it cannot, they are
skipped, which is said.
"""
import glob
import os
import re
import shutil
import subprocess
import sys

SOURCE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "..")
sys.path.insert(0, os.path.join(SOURCE, "python"))
import wheel  # noqa: E402

LOADED = """
with open("/proc/self/maps") as maps:
    files = {line.split()[-1] for line in maps if ".so" in line}
names = ("libkasane", "libspdlog", "libfmt", "libhwloc", "liburing")
mine = [f for f in files if any(name in f for name in names)]
assert len(mine) >= 5 and all("/ENV" in f for f in mine), mine
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def programs():
    """Those of the guide that are whole."""
    with open(os.path.join(SOURCE, "docs", "guide", "python.md"), encoding="utf-8") as guide:
        blocks = re.findall(r"^```python\n(.*?)^```", guide.read(), re.MULTILINE | re.DOTALL)
    whole = [b for b in blocks if b.startswith("import kasane")]
    assert len(whole) >= 3, "the guide has lost its programs"
    return whole


def check_libraries(package):
    """All files but the modules for an MPI, which are loaded later, load the libraries of the wheel, and none
    of the system's of that name."""
    of_wheel = os.path.join(package, "lib")
    for file in wheel.elf_files(package):
        if "kasane-mpi-" in file:
            continue
        for name, path in wheel.needed(file).items():
            if name in os.listdir(of_wheel):
                assert os.path.samefile(path, os.path.join(of_wheel, name)), (file, path)


def pip_can(interpreter, *what):
    """Whether there is a network, and what is wanted."""
    done = subprocess.run([interpreter, "-m", "pip", *what, "-q", "--only-binary", ":all:"], check=False,
                          capture_output=True)
    return done.returncode == 0


def can_build(interpreter, folder):
    """Whether pip finds what the C++ part needs; says so where it does not."""
    can = pip_can(interpreter, "download", "--no-deps", "pybind11", "setuptools", "-d",
                  os.path.join(folder, "pip"))
    if not can:
        print(f"{interpreter}: skipped, pip finds no pybind11", flush=True)
    return can


def in_environment(interpreter, file, folder, ranks):
    """The guide's programs with a wheel in an environment of an interpreter; False: pip finds no NumPy."""
    home = os.path.join(folder, f"ENV{wheel.version_of(interpreter)}")
    of_system = ["--system-site-packages"] if interpreter == sys.executable else []
    run(interpreter, "-m", "venv", *of_system, home)
    python, kasane, pip = (os.path.join(home, "bin", name) for name in ("python3", "kasane", "pip"))
    if not of_system and not pip_can(python, "install", "numpy"):
        return False
    clean = {k: v for k, v in os.environ.items() if k.startswith("OMPI_ALLOW") or k == "OPENBLAS_CORETYPE"}
    clean |= {"PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1", "HOME": folder}
    run(pip, "install", "--no-index", "--no-deps", file, env=clean)
    assert "kasane 0" in run(kasane, "--version", env=clean)
    check_libraries(*glob.glob(os.path.join(home, "lib", "python*", "site-packages", "kasane")))
    for k, text in enumerate(programs()):
        program = os.path.join(folder, f"program{k}.py")
        with open(program, "w", encoding="utf-8") as f:
            f.write(text + LOADED)
        if ranks or "kasane.start" not in text:
            run(python, program, env=clean, cwd=folder)
        if ranks and "kasane.start" not in text:
            run(kasane, "run", "--attach", "-n", "2", "--", python, program, env=clean, cwd=folder)
    shutil.rmtree(home)
    return True


def main(build, core, folder, *more):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    others = [a for a in more if a != "ranks"]
    if others in (["found"], ["newest"]):
        others = list(wheel.found_pythons().values())[0 if others == ["found"] else -1:]
    others = [p for p in others
              if wheel.version_of(p) != wheel.version_of(sys.executable) and can_build(p, folder)]
    run(sys.executable, wheel.__file__, build, core, folder, *others)
    file, = glob.glob(os.path.join(folder, "*.whl"))
    assert "manylinux_2_" in file, file
    for interpreter in (sys.executable, *others):
        done = in_environment(interpreter, file, folder, "ranks" in more and interpreter == sys.executable)
        print(f"{interpreter}: {'passed' if done else 'skipped, pip finds no NumPy'}", flush=True)
    shutil.rmtree(folder)
    print("wheel: the guide's programs passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
