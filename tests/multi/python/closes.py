# SPDX-License-Identifier: Apache-2.0
# Closes all descriptors, as daemons do, and starts a program as subprocess does.
import os
import subprocess

import kasane

before = kasane.full((90, 80), 2.0)
os.closerange(3, 20000)
child = subprocess.run(["echo", "child"], close_fds=True, capture_output=True, check=True)
after = kasane.full((900, 800), 2.0)
print(child.stdout.decode().strip(), before.sum(), after.sum())
