#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""embed.py OUT FILE...: the profiles as one C table of strings."""
import os
import sys

out, files = sys.argv[1], sys.argv[2:]
with open(out, 'w') as c:
    c.write('#include "src/launch/profiles.h"\n\n')
    c.write('const struct hs_profile_text hs_profile_texts[] = {\n')
    for path in files:
        c.write('\t{"%s",\n' % os.path.basename(path))
        with open(path) as f:
            for line in f.read().splitlines():
                line = line.replace('\\', '\\\\').replace('"', '\\"')
                c.write('\t\t"%s\\n"\n' % line)
        c.write('\t},\n')
    c.write('\t{0},\n};\n')
