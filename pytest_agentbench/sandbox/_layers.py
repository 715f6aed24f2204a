"""What a process can do to itself so that it can do less: Landlock, seccomp, capabilities, limits.

Standard library only: it is loaded by :mod:`_server`, a program that runs without site-packages.
Each function applies one layer to the calling process for good, or raises :class:`OSError`.

Sources: ``landlock(7)``, ``seccomp(2)``, ``capabilities(7)``, ``user_namespaces(7)`` and
``mount_setattr(2)`` of the Linux man pages; system call numbers from the kernel's tables.
"""

import ctypes
import os
import platform
import resource
import stat
import struct
import sys
from collections.abc import Iterable
from typing import Any

LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True)
_MIB = 1 << 20

# -- system calls without a wrapper in libc -------------------------------------------------------

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_MOUNT_SETATTR = 442


def _call(number: int, *arguments: Any) -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _prctl(option: int, *arguments: int) -> None:
    padded = (*arguments, 0, 0, 0, 0)[:4]
    if _libc.prctl(option, *(ctypes.c_ulong(value) for value in padded)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def be_subreaper() -> None:
    """Adopt every descendant whose parent dies."""
    _prctl(36, 1)


def die_with_parent() -> None:
    """Be killed when the parent dies."""
    _prctl(1, 9)


def no_new_privileges() -> None:
    """Set-id programs give nothing from now on."""
    _prctl(38, 1)


# -- limits ---------------------------------------------------------------------------------------


def limit(*, memory_mib: int, cpu_s: float, file_mib: int, processes: int | None = None) -> None:
    """Resource limits, hard ones: no process of the tree can raise them again."""
    wanted = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, memory_mib * _MIB),
        (resource.RLIMIT_CPU, int(cpu_s) + 1),
        (resource.RLIMIT_FSIZE, file_mib * _MIB),
        (resource.RLIMIT_NOFILE, 256),
    ]
    if processes is not None:
        wanted.append((resource.RLIMIT_NPROC, processes))
    for which, value in wanted:
        hard = resource.getrlimit(which)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        try:
            resource.setrlimit(which, (value, value))
        except (OSError, ValueError):
            if LINUX or which != resource.RLIMIT_AS:  # macOS knows no such limit
                raise


# -- users and capabilities -----------------------------------------------------------------------

_DAC_READ_SEARCH = 2
_SETUID = 7


def may_change_user() -> bool:
    """Whether this process is root and may become another user."""
    if not LINUX or os.geteuid() != 0:
        return False
    with open("/proc/self/status") as file:
        effective = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff"))
    return bool(effective >> _SETUID & 1)


def become(user: int) -> None:
    """Root becomes the *user* number, which owns nothing and may only read what root may read.

    What it reads is for Landlock to decide; without it, do not call this.
    """
    _prctl(8, 1)  # PR_SET_KEEPCAPS
    _bound(_DAC_READ_SEARCH)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    read = 1 << _DAC_READ_SEARCH
    try:
        _capset(read)
        _prctl(47, 2, _DAC_READ_SEARCH)  # PR_CAP_AMBIENT_RAISE: programs that it starts, too
    except OSError:
        _capset(0)  # root without that capability: then what others may read must do


def drop_capabilities() -> None:
    """Keep none."""
    _bound(None)
    try:
        _prctl(47, 4)  # PR_CAP_AMBIENT_CLEAR_ALL
    except OSError:
        pass
    _capset(0)


def _bound(kept: int | None) -> None:
    """No program that is started gets a capability, but *kept*."""
    for capability in range(64):
        if capability != kept:
            try:
                _prctl(24, capability)  # PR_CAPBSET_DROP
            except OSError:
                return  # beyond the last one, or not allowed: then there are none to lose


def _capset(mask: int) -> None:
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    data = ctypes.create_string_buffer(
        struct.pack("=6I", mask, mask, mask, 0, 0, 0)  # effective, permitted, inheritable
    )
    if _libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


def own_namespace(writable: str) -> None:
    """A user and mount namespace in which all but *writable* is read-only (not for root).

    It makes ``chmod`` and its like harmless, and lets the limit on processes count from zero.
    """
    user, group = os.getuid(), os.getgid()
    if _libc.unshare(0x10000000 | 0x00020000):  # CLONE_NEWUSER | CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    _mount(None, b"/", 0x40000 | 0x4000)  # MS_PRIVATE | MS_REC
    place = os.fsencode(writable)
    _mount(place, place, 0x1000)  # MS_BIND
    readonly = struct.pack("=QQQQ", 1, 0, 0, 0)
    _mount_setattr(b"/", 0x8000, readonly)  # AT_RECURSIVE
    _mount_setattr(place, 0, struct.pack("=QQQQ", 0, 1, 0, 0))


def _mount(source: bytes | None, target: bytes, flags: int) -> None:
    if _libc.mount(source, target, None, ctypes.c_ulong(flags), None):
        raise OSError(ctypes.get_errno(), "mount")


def _mount_setattr(path: bytes, flags: int, attributes: bytes) -> None:
    _call(_MOUNT_SETATTR, -100, path, flags, attributes, ctypes.c_size_t(len(attributes)))


# -- Landlock -------------------------------------------------------------------------------------

_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
#: Making character devices, sockets, FIFOs and block devices.
_MAKE_SPECIAL = 1 << 6 | 1 << 9 | 1 << 11
_HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def landlock_abi() -> int:
    """Version of Landlock's interface; 0 where there is none."""
    if not LINUX:
        return 0
    try:
        return int(_call(_LANDLOCK_CREATE, None, 0, 1))
    except OSError:
        return 0


def landlock(*, read: Iterable[str], write: Iterable[str], execute: bool) -> None:
    """No file but below *read* can be read, none but below *write* written; no TCP, no signals out.

    Programs in *write* can be started if *execute*.
    """
    abi = landlock_abi()
    if abi < 1:
        raise OSError(38, "there is no Landlock")
    handled = _HANDLED.get(abi, (1 << 16) - 1)
    attributes = struct.pack("=QQQ", handled, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _call(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0)

    def allow(path: str, access: int) -> None:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
        rule = struct.pack("=Qi", access & handled, fd)
        _call(_LANDLOCK_ADD, ruleset, 1, rule, 0)
        os.close(fd)

    for path in read:
        allow(path, _EXECUTE | _READ | _LIST)
    for path in _DEVICES:
        allow(path, _READ | _WRITE)
    rights = handled & ~_MAKE_SPECIAL
    for path in write:
        allow(path, rights if execute else rights & ~_EXECUTE)
    no_new_privileges()
    _call(_LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)


# -- seccomp --------------------------------------------------------------------------------------

#: Numbers by machine: what nobody needs; what only starts processes; what may be done to oneself
#: only (a first argument of 0); what tells processes things; what changes modes, owners, times and
#: attributes of files that need not be open.
_TABLES: dict[str, dict[str, Any]] = {
    "x86_64": {
        "arch": 0xC000003E,
        "never": (
            "socket:41 connect:42 bind:49 ptrace:101 process_vm_readv:310 process_vm_writev:311 "
            "pidfd_open:434 pidfd_getfd:438 pidfd_send_signal:424 mount:165 umount2:166 "
            "unshare:272 setns:308 pivot_root:155 chroot:161 bpf:321 perf_event_open:298 "
            "keyctl:250 add_key:248 request_key:249 userfaultfd:323 io_uring_setup:425 "
            "open_by_handle_at:304 mknod:133 mknodat:259 shmget:29 msgget:68 semget:64 "
            "mq_open:240 process_madvise:440 swapon:167 reboot:169 kexec_load:246 init_module:175 "
            "finit_module:313 acct:163 quotactl:179 personality:135 open_tree:428 move_mount:429 "
            "fsopen:430 fsmount:432 mount_setattr:442 kcmp:312 name_to_handle_at:303 seccomp:317 "
            "landlock_create_ruleset:444 memfd_create:319 shmat:30 shmctl:31 shmdt:67 semop:65 "
            "semctl:66 semtimedop:220 msgsnd:69 msgrcv:70 msgctl:71 mq_unlink:241 "
            "mq_timedsend:242 mq_timedreceive:243 mq_notify:244 mq_getsetattr:245 ioprio_set:251 "
            "migrate_pages:256 move_pages:279 inotify_init:253 inotify_init1:294 "
            "fanotify_init:300 quotactl_fd:443 process_mrelease:448"
        ),
        "start": "fork:57 vfork:58 execve:59 execveat:322 setsid:112 setpgid:109",
        "own": "sched_setaffinity:203 sched_setscheduler:144 sched_setparam:142 "
        "sched_setattr:314 prlimit64:302",
        "setpriority": 141,
        "socketpair": 53,
        "signal": "kill:62 tkill:200 tgkill:234 rt_sigqueueinfo:129 rt_tgsigqueueinfo:297",
        "modes": "chmod:90 fchmod:91 fchmodat:268 fchmodat2:452 chown:92 fchown:93 lchown:94 "
        "fchownat:260 setxattr:188 lsetxattr:189 fsetxattr:190 setxattrat:463 removexattr:197 "
        "lremovexattr:198 fremovexattr:199 removexattrat:466 utime:132 utimes:235 futimesat:261 "
        "utimensat:280",
        "clone": 56,
        "clone3": 435,
        "x32": True,
    },
    "aarch64": {
        "arch": 0xC00000B7,
        "never": (
            "socket:198 connect:203 bind:200 ptrace:117 process_vm_readv:270 "
            "process_vm_writev:271 pidfd_open:434 pidfd_getfd:438 pidfd_send_signal:424 mount:40 "
            "umount2:39 unshare:97 setns:268 pivot_root:41 chroot:51 bpf:280 perf_event_open:241 "
            "keyctl:219 add_key:217 request_key:218 userfaultfd:282 io_uring_setup:425 "
            "open_by_handle_at:265 mknodat:33 shmget:194 msgget:186 semget:190 mq_open:180 "
            "process_madvise:440 swapon:224 reboot:142 kexec_load:104 init_module:105 "
            "finit_module:273 acct:89 quotactl:60 personality:92 open_tree:428 move_mount:429 "
            "fsopen:430 fsmount:432 mount_setattr:442 kcmp:272 name_to_handle_at:264 seccomp:277 "
            "landlock_create_ruleset:444 memfd_create:279 shmat:196 shmctl:195 shmdt:197 "
            "semop:193 semctl:191 semtimedop:192 msgsnd:189 msgrcv:188 msgctl:187 mq_unlink:181 "
            "mq_timedsend:182 mq_timedreceive:183 mq_notify:184 mq_getsetattr:185 ioprio_set:30 "
            "migrate_pages:238 move_pages:239 inotify_init1:26 fanotify_init:262 quotactl_fd:443 "
            "process_mrelease:448"
        ),
        "start": "execve:221 execveat:281 setsid:157 setpgid:154",
        "own": "sched_setaffinity:122 sched_setscheduler:119 sched_setparam:118 "
        "sched_setattr:274 prlimit64:261",
        "setpriority": 140,
        "socketpair": 199,
        "signal": "kill:129 tkill:130 tgkill:131 rt_sigqueueinfo:138 rt_tgsigqueueinfo:240",
        "modes": "fchmod:52 fchmodat:53 fchmodat2:452 fchown:55 fchownat:54 setxattr:5 "
        "lsetxattr:6 fsetxattr:7 setxattrat:463 removexattr:14 lremovexattr:15 fremovexattr:16 "
        "removexattrat:466 utimensat:88",
        "clone": 220,
        "clone3": 435,
        "x32": False,
    },
}
_LOAD, _EQUAL, _AT_LEAST, _BITS, _RETURN, _MASK = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_ALL = 0xFFFFFFFF
_THREAD, _NEW_NAMESPACES = 0x10000, 0x7E020000


def has_seccomp() -> bool:
    """Whether a filter can be installed here, on a machine whose numbers are known."""
    if not LINUX or platform.machine() not in _TABLES:
        return False
    # without a filter, an impossible address is what the kernel complains of
    _libc.prctl(22, ctypes.c_ulong(2), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    return ctypes.get_errno() == 14


def seccomp(*, processes: bool, modes: bool) -> None:
    """No network, no debugging, no mounts; without *processes*, no new process and no signal.

    Unless *modes*, system calls that change modes, owners and times answer success and do nothing:
    no other layer stops them outside, and honest code (``shutil.copy2``) makes them.
    """
    table = _TABLES[platform.machine()]

    def numbers(group: str) -> list[int]:
        return [int(entry.rpartition(":")[2]) for entry in table[group].split()]

    program: list[bytes] = []

    def say(code: int, yes: int, no: int, value: int) -> None:
        program.append(struct.pack("=HBBI", code, yes, no, value))

    say(_LOAD, 0, 0, 4)
    say(_EQUAL, 1, 0, table["arch"])
    say(_RETURN, 0, 0, _KILL)
    say(_LOAD, 0, 0, 0)
    if table["x32"]:
        say(_AT_LEAST, 0, 1, 0x40000000)
        say(_RETURN, 0, 0, _ERROR | _EPERM)
    say(_EQUAL, 0, 1, table["clone3"])  # its flags cannot be seen: libc falls back to clone
    say(_RETURN, 0, 0, _ERROR | _ENOSYS)
    refused = numbers("never")
    if not processes:
        refused += numbers("start") + numbers("signal")
    for number in refused:
        say(_EQUAL, 0, 1, number)
        say(_RETURN, 0, 0, _ERROR | _EPERM)
    for number in [] if modes else numbers("modes"):
        say(_EQUAL, 0, 1, number)
        say(_RETURN, 0, 0, _ERROR)

    def only(number: int, *wanted: tuple[int, int, int]) -> None:
        """Allow a call whose arguments (by place, masked) have these values, and refuse others."""
        rest = 3 * len(wanted) + 2
        say(_EQUAL, 0, rest, number)
        for place, mask, value in wanted:
            rest -= 3
            say(_LOAD, 0, 0, 16 + 8 * place)
            say(_MASK, 0, 0, mask)
            say(_EQUAL, 0, rest - 1, value)
        say(_RETURN, 0, 0, _ALLOW)
        say(_RETURN, 0, 0, _ERROR | _EPERM)

    for number in numbers("own"):
        only(number, (0, _ALL, 0))
    only(table["setpriority"], (0, _ALL, 0), (1, _ALL, 0))  # PRIO_PROCESS, itself
    only(table["socketpair"], (1, 0xF, 1))  # streams: a datagram could be sent elsewhere
    # clone(flags, …): no new namespaces; threads always, processes only if allowed
    say(_EQUAL, 0, 4, table["clone"])
    say(_LOAD, 0, 0, 16)
    say(_BITS, 1, 0, _NEW_NAMESPACES)
    if processes:
        say(_RETURN, 0, 0, _ALLOW)
    else:
        say(_BITS, 1, 0, _THREAD)
    say(_RETURN, 0, 0, _ERROR | _EPERM)
    say(_RETURN, 0, 0, _ALLOW)

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    code = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
    no_new_privileges()
    filter_ = Program(len(program), ctypes.addressof(code))
    if _libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(filter_), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")
