"""Runs one command and leaves none of its processes behind (a program, not a module to import).

``python -I -S _supervisor.py CONTROL STATUS COMMAND…``.  As a child subreaper it inherits every
descendant, daemons included.  When the command ends, or the descriptor CONTROL reaches its end
(the harness closed it, or died), all of them are killed and reaped.  STATUS then gets one line:
``exit N`` or ``exec ERRNO``.  Standard library only, no site-packages, so that it starts fast.
"""

import ctypes
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
#: How long to keep killing processes that keep forking.
PATIENCE_S = 5.0


def main() -> int:
    control, status = int(sys.argv[1]), int(sys.argv[2])
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    exec_read, exec_write = os.pipe()  # closed by a successful exec, carries errno otherwise
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    child = os.fork()
    if child == 0:
        _exec(libc, control, status, exec_write)
    os.close(exec_write)
    for fd in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)  # the pipes end with the command's own ends
    failure = os.read(exec_read, 16)
    code = None
    while code is None:
        ready, _, _ = select.select([control, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 64)
            code = _reap(child)
        if code is None and control in ready:
            code = -signal.SIGKILL
    kill_descendants()
    line = b"exec " + failure if failure else b"exit %d" % code
    os.write(status, line + b"\n")
    return 0


def _exec(libc: ctypes.CDLL, control: int, status: int, exec_write: int) -> None:
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.close(control)
        os.close(status)
        os.execvp(sys.argv[3], sys.argv[3:])
    except OSError as error:
        os.write(exec_write, b"%d" % (error.errno or 1))
    finally:
        os._exit(127)


def _reap(child: int) -> "int | None":
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == child:
            code = os.waitstatus_to_exitcode(status)


def kill_descendants() -> bool:
    """Kill them all; whether that came to an end."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = descendants()
        if not found:
            return True
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        _reap(-1)
        time.sleep(0.002)
    return False


def descendants() -> "list[int]":
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                # bytes: the name of a process is whatever it says
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rsplit(b")", 1)[1].split()[1])
            except (OSError, ValueError, IndexError):
                continue
    me = os.getpid()
    found = []
    for pid in parents:
        ancestor = parents[pid]
        while ancestor in parents and ancestor != me:
            ancestor = parents[ancestor]
        if ancestor == me:
            found.append(pid)
    return found


if __name__ == "__main__":
    sys.exit(main())
