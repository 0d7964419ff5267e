"""Programs that try to get out of a sandbox, or to a reward they have not earned.

Each prints "escaped" if and only if it got what it wanted. {secret} is a file of the host's, {port} and {abstract} are
sockets somebody listens on there, {victim} is a process of the same user.
"""

STDIN = {
    "forks without end": """
import os
for _ in range(300):
    if not os.fork():
        import time; time.sleep(60)
print("escaped")
""",
    "starts threads without end": """
import threading, time
for _ in range(300):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("escaped", flush=True)
""",
    "fills memory": "x = bytearray(1 << 30); print('escaped')",
    "fills memory with many processes": """
import os, time
for _ in range(10):
    if not os.fork():
        held = b"x" * (100 << 20); time.sleep(60)
time.sleep(60)
""",
    "fills memory with nameless files": """
import os
for i in range(20):
    os.write(os.memfd_create(f"m{i}"), b"x" * (16 << 20))
print("escaped")
""",
    "fills memory with shared segments": """
import ctypes
libc = ctypes.CDLL(None)
print("escaped" if libc.shmget(0, ctypes.c_size_t(1 << 20), 0o1600) >= 0 else "no")
""",
    "fills the disk": """
for i in range(64):
    open(f"/tmp/{i}", "wb").write(b"x" * (1 << 20))
print("escaped")
""",
    "fills the disk with one sparse file": "open('x', 'wb').truncate(1 << 40); print('escaped')",
    "unpacks a bomb": """
import zlib
bomb = zlib.compress(b"\\0" * (64 << 20), 9)
print("escaped" if len(zlib.decompress(bomb) * 8) else "no")
""",
    "reads /etc/shadow": "print('escaped' if open('/etc/shadow').read() else 'no')",
    "reads a file of the host": "print('escaped' if 'secret' in open('{secret}').read() else 'no')",
    "reads a file of the host through a symlink": """
import os
os.symlink("{secret}", "link")
print("escaped" if "secret" in open("link").read() else "no")
""",
    "reads a file of the host through ..": """
print("escaped" if "secret" in open("/usr/" + "../" * 30 + "{secret}").read() else "no")
""",
    "finds a secret in its environment": """
import os
print("escaped" if "secret" in str(os.environ) else "no")
""",
    "finds a secret in its parents' environment": """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if b"secret" in open(f"/proc/{pid}/environ", "rb").read():
            print("escaped"); break
    except OSError:
        pass
""",
    "mounts proc": """
import ctypes, os
os.mkdir("/tmp/p")
print("escaped" if ctypes.CDLL(None).mount(b"proc", b"/tmp/p", b"proc", 0, None) == 0 else "no")
""",
    "makes the root writable": """
import ctypes
print("escaped" if ctypes.CDLL(None).mount(b"none", b"/", None, 32 | 4096, None) == 0 else "no")
""",
    "writes outside /tmp": """
import os, sys
for folder in ("/", "/usr", "/usr/bin", "/etc", "/dev", "/root", sys.prefix, os.path.dirname(os.__file__)):
    try:
        open(os.path.join(folder, "x"), "w").write("x"); print("escaped"); break
    except OSError:
        pass
""",
    "writes through a symlink": """
import os
os.symlink("{secret}", "link")
open("link", "a").write("x"); print("escaped")
""",
    "connects to a loopback port": """
import socket
socket.create_connection(("127.0.0.1", {port}), 1); print("escaped")
""",
    "connects to an abstract socket": """
import socket
socket.socket(socket.AF_UNIX).connect("\\0{abstract}"); print("escaped")
""",
    "sends to the world": """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)); print("escaped")
""",
    "takes raw packets": """
import socket
socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print("escaped")
""",
    "brings the loopback interface up": """
import fcntl, socket, struct
request = struct.pack("16sh22x", b"lo", 1)
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914, request); print("escaped")
""",
    "sleeps": "import time; time.sleep(60); print('escaped')",
    "spins with all signals blocked": """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
for number in set(range(1, 32)) - {{9, 19}}:
    signal.signal(number, signal.SIG_IGN)
while True: pass
""",
    "waits for more input": "import sys; sys.stdin.read(); import time; time.sleep(60)",
    "prints a gigabyte": """
import os
for _ in range(1 << 14): os.write(1, b"x" * (1 << 16))
""",
    "prints to stderr without end": """
import os
while True: os.write(2, b"x" * (1 << 16))
""",
    "kills its parent": """
import os, time
os.kill(os.getppid(), 9); time.sleep(0.2)
print("escaped" if os.getppid() != 1 else "no")
""",
    "kills its process group": """
import os
os.killpg(os.getpgrp(), 9)
""",
    "kills everyone": """
import os
os.kill(-1, 9)
""",
    "kills a process of the host": "import os; os.kill({victim}, 9); print('escaped')",
    "kills a group by number": """
import os
for group in range(3, 400):
    try:
        os.killpg(group, 9); print("escaped"); break
    except OSError:
        pass
""",
    "traces its parent": """
import ctypes
print("escaped" if ctypes.CDLL(None).ptrace(16, 1, None, None) == 0 else "no")
""",
    "becomes root": "import os; os.setuid(0); print('escaped')",
    "becomes root by a set-user-id program": """
import subprocess
print("escaped" if "uid=0" in subprocess.run(["su", "-c", "id"], capture_output=True, text=True).stdout else "no")
""",
    "becomes root of a user namespace": """
import ctypes
print("escaped" if ctypes.CDLL(None).unshare(0x10000000) == 0 else "no")
""",
    "gains capabilities": """
import ctypes, struct
libc = ctypes.CDLL(None)
header, all_of_them = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[0xFFFFFFFF] * 6)
print("escaped" if libc.capset(header, all_of_them) == 0 else "no")
""",
    "enters the namespaces of process 1": """
import ctypes, os
print("escaped" if ctypes.CDLL(None).setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0) == 0 else "no")
""",
    "escapes by chroot": """
import os
os.mkdir("/tmp/jail"); os.chroot("/tmp/jail")
for _ in range(64): os.chdir("..")
os.chroot("."); print("escaped")
""",
    "makes device nodes": """
import os, stat
os.mknod("/tmp/memory", 0o600 | stat.S_IFCHR, os.makedev(1, 1)); print("escaped")
""",
    "raises its limits": """
import resource
for name in ("NPROC", "AS", "CPU", "FSIZE", "NOFILE"):
    try:
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (1 << 40, 1 << 40)); print("escaped"); break
    except (ValueError, OSError):
        pass
""",
    "changes the clock": "import time; time.clock_settime(time.CLOCK_REALTIME, 0); print('escaped')",
    "changes the host name": "import socket; socket.sethostname('x'); print('escaped')",
    "takes a real-time priority": """
import os
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)); print("escaped")
""",
    "types on the terminal": """
import fcntl
fcntl.ioctl(open("/dev/tty"), 0x5412, b"x"); print("escaped")
""",
    "finds open files": """
import os
for descriptor in range(3, 1024):
    try:
        os.fstat(descriptor); print("escaped"); break
    except OSError:
        pass
""",
    "recurses without end": """
import sys
sys.setrecursionlimit(1 << 30)
def f(x): return f([x]) + 1
f(0)
""",
    "exits well before it has answered": "import os; os._exit(0)",
    "looks for the other tests": """
import gc, sys
frame, texts = sys._getframe(), [str(sys.argv), str(globals())]
while frame: texts.append(str(frame.f_locals) + str(frame.f_globals)); frame = frame.f_back
texts += [str(thing) for thing in gc.get_objects() if isinstance(thing, (dict, list, tuple))]
import os
texts += os.listdir("/tmp")
print("escaped" if any("".join(("of the ", "second test")) in text for text in texts) else "no")
""",
    "prints after its end": """
import os, time
if not os.fork():
    os.setsid()
    if not os.fork():
        time.sleep(60); print("escaped"); os._exit(0)
    os._exit(0)
""",
}

CALLS = {
    "exits as if all were well": "import sys; sys.exit(0)",
    "exits at once when called": "import os\ndef answer(x): os._exit(0)",
    "returns what equals everything": """
class Equal(int):
    def __eq__(self, other): return True
    __hash__ = None
def answer(x): return Equal(0)
""",
    "replaces what tests are made of": """
import builtins
builtins.len = builtins.abs = builtins.isinstance = lambda *_: True
builtins.AssertionError = type("Harmless", (Exception,), {})
builtins.exec = builtins.compile = lambda *_: None
def len(x): return 42
def approximately(a, b): return True
def answer(x): return 0
""",
    "answers before it is asked": """
import os
frame = b"('returned', True)"
for descriptor in range(1, 64):
    try:
        for _ in range(100): os.write(descriptor, len(frame).to_bytes(4, "little") + frame)
    except OSError:
        pass
def answer(x): return 0
""",
    "sends a frame without end": """
import os
def answer(x):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"\\xff\\xff\\xff\\x7f")
            while True: os.write(descriptor, b"x" * 65536)
        except OSError:
            pass
""",
    "returns what is not a value": "def answer(x): return open",
    "returns a depth that no parser takes": """
def answer(x):
    found = []
    for _ in range(900): found = [found]
    return found
""",
    "raises what tests do not catch": "def answer(x): raise SystemExit(0)",
    "looks for its tests": """
import gc, os, sys
def answer(x):
    seen = str(sys.argv) + str([sys._getframe(depth).f_locals for depth in range(2)]) + str(os.listdir("/tmp"))
    seen += str([thing for thing in gc.get_objects() if isinstance(thing, (dict, list))])
    return 42 if "assert" " answer" in seen else 0
""",
    "leaves a daemon": """
import os, time
if not os.fork():
    os.setsid()
    if not os.fork(): time.sleep(60)
    os._exit(0)
def answer(x): return 0
""",
    "is no Python": "def answer(x) return 42",
}

HARMLESS = (
    "reads a file of the host",
    "reads a file of the host through a symlink",
    "finds a secret in its environment",
    "finds a secret in its parents' environment",
    "connects to a loopback port",
    "connects to an abstract socket",
    "kills a process of the host",
    "fills memory with nameless files",
    "fills memory with shared segments",
    "fills the disk with one sparse file",
    "finds open files",
    "unpacks a bomb",
)
"""Those that can be tried without a sandbox, to see that they would escape."""
