"""Programs that nobody has read, run so that nothing of the machine is theirs.

isolation.py     which isolation there is here, tried out; refused where there is none
  bubblewrap.py  by the `bwrap` command
  namespaces.py  by Linux namespaces alone, which launcher.py builds
sandbox.py       one program in a sandbox: limits, streams within bounds, its end
  watch.py       streams and memory of running programs, until they end or a limit is met
launcher.py, inside.py   scripts: around the sandbox, and first inside it
"""
