# SPDX-License-Identifier: MIT
"""The wheel, made and installed into an environment of its own.

usage: wheel.py TOOLS/WHEEL BUILD
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

WHEEL, BUILD = sys.argv[1:3]
ENVIRONMENT = {k: v for k, v in os.environ.items()
               if not k.startswith(("HISPARSE_", "LD_PRELOAD", "PYTHON", "VIRTUAL_ENV"))}


def run(*command):
    done = subprocess.run(list(map(str, command)), env=ENVIRONMENT, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, (command, done.returncode, done.stdout, done.stderr)
    return done.stdout


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        made = subprocess.run([sys.executable, WHEEL, BUILD, "--installed", "-o", folder], check=False)
        if made.returncode:
            sys.exit(made.returncode)
        wheel, = folder.glob("hisparse-*-py3-none-manylinux_2_28_x86_64.whl")
        names = set(zipfile.ZipFile(wheel).namelist())
        assert {n.split(".data/data/")[1] for n in names if ".data/" in n} == {
            "share/man/man1/hisparse.1", "share/man/man7/libhisparse.7"}, names
        run(sys.executable, "-m", "venv", folder / "venv")
        run(folder / "venv/bin/pip", "install", "-q", "--no-index", wheel)
        command = folder / "venv/bin/hisparse"
        assert run(command, "--help").startswith("Usage: hisparse COMMAND")
        library = run(command, "run", "--", folder / "venv/bin/python3", "-c",
                      "import hisparse, os; assert hisparse.LIBRARY == os.environ['LD_PRELOAD']; "
                      "print(open('/proc/self/maps').read().count('libhisparse.so') > 0)")
        assert library == "True\n", library
        run(command, "plot", "--help")
        page = folder / "venv/share/man/man1/hisparse.1"
        assert page.read_text().startswith(".\\\""), page
        # Every file is in RECORD: nothing is left.
        run(folder / "venv/bin/pip", "uninstall", "-q", "-y", "hisparse")
        left = [path for path in folder.glob("venv/**/*hisparse*") if path.is_file()]
        assert not left, left


if __name__ == "__main__":
    main()
