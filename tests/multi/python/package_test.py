# SPDX-License-Identifier: Apache-2.0
"""`package_test.py BUILD FOLDER`: the components that Debian packages are made of, installed and moved; the
package for the system's Python finds the library and the command there."""
import os
import shutil
import subprocess
import sys

PROGRAM = """
import kasane
assert kasane.__file__.startswith(PLACE), kasane.__file__
assert kasane.ones(4).sum() == 4
kasane.show_config()
"""
STARTS = """
kasane.detach()
kasane.start(ranks=2)
assert kasane.ones(4).sum() == 4 and kasane.ranks() == 2
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main(build, folder, ranks):
    shutil.rmtree(folder, ignore_errors=True)
    first, moved = os.path.join(folder, "first"), os.path.join(folder, "moved")
    for component in ("runtime", "openmpi", "mpich", "devel", "python"):
        run("cmake", "--install", build, "--prefix", first, "--component", component)
    os.rename(first, moved)
    clean = {**os.environ, "PYTHONPATH": os.path.join(moved, "lib", "python3", "dist-packages")}
    text = f"PLACE = {moved!r}\n" + PROGRAM + (STARTS if ranks else "")
    said = run(sys.executable, "-c", text, env=clean, cwd=folder)
    assert f"library: {moved}/lib" in said and "/../" not in said and "h5py: " in said, said
    sources = os.listdir(os.path.join(moved, "share", "kasane", "python"))
    assert {"pyproject.toml", "setup.py", "kasane"} <= set(sources), sources
    shutil.rmtree(folder)
    print("package: passed")


if __name__ == "__main__":
    main(*sys.argv[1:3], sys.argv[3:] == ["ranks"])
