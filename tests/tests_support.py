"""Programs that tests hand to other processes."""

from __future__ import annotations

#: Makes the calling process, and all that it starts, see a kernel without Landlock.
WITHOUT_LANDLOCK = """
import ctypes, struct, sys, platform
numbers = (444, 445, 446)
say = lambda code, yes, no, value: struct.pack("=HBBI", code, yes, no, value)
program = [say(0x20, 0, 0, 0)]
for number in numbers:
    program += [say(0x15, 0, 1, number), say(0x06, 0, 0, 0x00050000 | 38)]
program.append(say(0x06, 0, 0, 0x7FFF0000))
code = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
assert libc.prctl(22, 2, ctypes.byref(Program(len(program), ctypes.addressof(code))), 0, 0) == 0
"""
