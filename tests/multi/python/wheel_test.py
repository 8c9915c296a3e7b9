# SPDX-License-Identifier: Apache-2.0
"""The wheel in an environment of its own: `wheel_test.py BUILD CORE FOLDER [ranks]`. The programs of the
guide run there, alone and, with `ranks`, on two; what is loaded comes from the environment. NumPy is the
system's."""
import glob
import os
import re
import shutil
import subprocess
import sys

SOURCE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "..")
LOADED = """
with open("/proc/self/maps") as maps:
    files = {line.split()[-1] for line in maps if ".so" in line}
names = ("libkasane", "libspdlog", "libfmt", "libhwloc", "liburing")
mine = [f for f in files if any(name in f for name in names)]
assert len(mine) >= 5 and all("/ENV/" in f for f in mine), mine
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


def main(build, core, folder, ranks):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    run(sys.executable, os.path.join(SOURCE, "python", "wheel.py"), build, core, folder)
    wheel, = glob.glob(os.path.join(folder, "*.whl"))
    assert "manylinux_2_" in wheel, wheel
    home = os.path.join(folder, "ENV")
    run(sys.executable, "-m", "venv", "--system-site-packages", home)
    clean = {k: v for k, v in os.environ.items() if k.startswith("OMPI_ALLOW") or k == "OPENBLAS_CORETYPE"}
    clean |= {"PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1", "HOME": folder}
    run(os.path.join(home, "bin", "pip"), "install", "--no-index", "--no-deps", wheel, env=clean)
    python, kasane = (os.path.join(home, "bin", name) for name in ("python3", "kasane"))
    assert "kasane 0" in run(kasane, "--version", env=clean)
    for k, text in enumerate(programs()):
        program = os.path.join(folder, f"program{k}.py")
        with open(program, "w", encoding="utf-8") as f:
            f.write(text + LOADED)
        if ranks or "kasane.start" not in text:
            run(python, program, env=clean, cwd=folder)
        if ranks and "kasane.start" not in text:
            run(kasane, "run", "--attach", "-n", "2", "--", python, program, env=clean, cwd=folder)
    shutil.rmtree(folder)
    print("wheel: the guide's programs passed")


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.argv[4:] == ["ranks"])
