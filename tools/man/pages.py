#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Make the manual pages: what the command and the option table say, and text.

usage: pages.py COMMAND TEXT VERSION PAGE          commands from `COMMAND --help`
       pages.py OPTIONS.DEF TEXT VERSION PAGE      variables from the table

TEXT is a page for man(7) with @VERSION@ in it, and a line @COMMANDS@ or
@VARIABLES@ that is replaced.
"""
import os
import re
import subprocess
import sys
import textwrap

# What says nothing about one command: flags, and lines of argp and argparse.
HELP = ("-?, --help", "--usage", "-h, --help")
SHARED = ("Mandatory or optional arguments to long options", "positional arguments:", "options:")


def escape(text):
    """For the middle of a line."""
    for plain, roff in (("\\", "\\e"), ("-", "\\-"), ("`", "\\(ga"), ("…", "...")):
        text = text.replace(plain, roff)
    return text


def paragraph(text):
    lines = textwrap.wrap(escape(text), 78, break_long_words=False, break_on_hyphens=False)
    return [re.sub(r"^([.'])", r"\\&\1", line) for line in lines]


def run(command, *arguments):
    # Wide enough for every line: nothing is wrapped, and columns are where they are.
    environment = dict(os.environ, ARGP_HELP_FMT="rmargin=2000", COLUMNS="2000",
                       ASAN_OPTIONS="detect_leaks=0")
    return subprocess.run([command, *arguments], env=environment, check=True, capture_output=True,
                          text=True).stdout


def options_of(lines):
    """Flags and help of argp's list; behind a long flag the help is a line of its own."""
    options = []
    for line in lines:
        found = re.match(r"^ {2,6}(-.*?)(?:  +(.*))?$", line)
        if found:
            options.append([found[1], found[2] or ""])
        elif options and line.startswith(" " * 20):
            options[-1][1] = line.strip()
    return options


def command_text(command, name):
    lines = run(command, name, "--help").splitlines()
    usage = [re.sub(r"^([Uu]sage:|  or:) +", "", line) for line in lines
             if re.match(r"[Uu]sage: |  or: ", line)]
    text = "\n".join(line for line in lines[len(usage):] if not line.startswith(SHARED))
    options = [(flag, line) for flag, line in options_of(text.splitlines())
               if not flag.startswith(HELP)]
    parts = [part.strip("\n") for part in text.split("\n\n")]
    prose = [" ".join(part.splitlines()) for part in parts if part and not part.startswith(" ")]
    out = [f'.SS "{escape(name)}"']
    for line in usage:
        head, _, tail = line.partition(f"hisparse {name}")
        out += [f'.B "{escape(head)}hisparse {escape(name)}"', escape(tail.strip()), ".br"]
    if usage:
        out.pop()
    out += [".PP", *paragraph(prose[0])]
    for flag, text in options:
        out += [".TP", f'.B "{escape(flag)}"', *paragraph(text)]
    for line in prose[1:]:
        out += [".PP", *paragraph(line)]
    return out


def commands(command):
    names = re.findall(r"^  (\w+)  ", run(command, "--help"), re.M)
    return [line for name in names for line in command_text(command, name)]


def variables(table):
    rows = re.findall(r'^OPT\(\w+, (\w+), "(\w+)", "(.*?)", .*?, "(.*)"\)$', table, re.M)
    assert len(rows) == table.count("\nOPT("), "a row of options.def is not understood"
    out = []
    for kind, name, otherwise, text in rows:
        value = {"PATH": "path", "GIB": "GiB", "CHOICE": "name", "FLAG": "0|1"}.get(kind, "number")
        out += [".TP", f'.BI {name}= "{escape(value)}"',
                *paragraph(text + (f" (default: {otherwise})" if otherwise else ""))]
    return out


def main():
    source, page, version, target = sys.argv[1:]
    with open(page, encoding="utf-8") as file:
        text = file.read().replace("@VERSION@", version)
    if source.endswith(".def"):
        with open(source, encoding="utf-8") as file:
            text = text.replace("@VARIABLES@", "\n".join(variables(file.read())))
    else:
        text = text.replace("@COMMANDS@", "\n".join(commands(source)))
    with open(target, "w", encoding="utf-8") as file:
        file.write(text)


main()
