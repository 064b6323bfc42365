# SPDX-License-Identifier: MIT
"""`meson install` into a folder, and what was installed at work.

usage: install.py BUILD
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv[1])


def run(*command, **more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HISPARSE_", "LD_PRELOAD"))}
    return subprocess.run(list(map(str, command)), env=dict(kept, **more), capture_output=True,
                          text=True, check=False)


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        # Relative to the prefix, wherever that is.
        done = run("meson", "install", "--no-rebuild", "-C", BUILD, DESTDIR=cls.folder.name)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.files = [path for path in pathlib.Path(cls.folder.name).rglob("*") if path.is_file()]
        cls.command = next(path for path in cls.files if path.name == "hisparse")
        cls.prefix = cls.command.parent.parent

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_files(self):
        # Where the distribution keeps libraries is its own business.
        names = {re.sub(r"^lib(64|/[^/]+-linux-gnu)/", "lib/", str(path.relative_to(self.prefix)))
                 for path in self.files}
        self.assertEqual(names, {"bin/hisparse", "lib/libhisparse.so", "share/hisparse/plot.py",
                                 "share/man/man1/hisparse.1", "share/man/man7/libhisparse.7"})

    def test_help(self):
        done = run(self.command, "--help")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("Usage: hisparse COMMAND"))
        self.assertEqual(run(self.command, "plot", "--help").returncode, 0)

    def test_run_finds_the_installed_library(self):
        library = next(path for path in self.files if path.name == "libhisparse.so")
        done = run(self.command, "run", "--", "sh", "-c", 'echo "$LD_PRELOAD"; cat /proc/$$/maps')
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines()[0], str(library.resolve()))
        self.assertIn(str(library.resolve()), done.stdout.split("\n", 1)[1])
        self.assertEqual(run(self.command, "run", "--", "true").returncode, 0)

    def test_pages(self):
        pages = [path for path in self.files if path.suffix in (".1", ".7")]
        self.assertEqual(len(pages), 2)
        command = next(path for path in pages if path.suffix == ".1").read_text()
        for name in re.findall(r"^  (\w+)  ", run(self.command, "--help").stdout, re.M):
            self.assertIn(f'.SS "{name}"', command)
        for page in pages:
            self.assertNotRegex(page.read_text(), r"@\w+@")
            for linter in (["mandoc", "-T", "lint", "-W", "style"],
                           ["groff", "-ww", "-man", "-Tutf8", "-z"]):
                if not shutil.which(linter[0]):
                    continue
                done = run(*linter, page)
                self.assertEqual((done.stdout, done.stderr), ("", ""))

    def test_every_option_has_a_line(self):
        page = next(path for path in self.files if path.suffix == ".7").read_text()
        table = (pathlib.Path(__file__).parents[2] / "src/base/options.def").read_text()
        variables = re.findall(r'^OPT\(.*?"(HISPARSE_\w+)"', table, re.M)
        self.assertEqual(re.findall(r"^\.BI (HISPARSE_\w+)= \"", page, re.M), variables)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
