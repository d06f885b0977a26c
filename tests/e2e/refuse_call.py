# SPDX-License-Identifier: Apache-2.0
"""refuse_call.py NAME ERRNO COMMAND...: runs the command on a host where the kernel answers this system call with that error. Needs root: the
command's power stays as it is."""
import ctypes
import os
import sys

ALLOW, ERRNO, NO_NEW_PRIVS = 0x7FFF0000, 0x00050000, 3


def main(name, number, *command):
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(ALLOW)))
    call = library.seccomp_syscall_resolve_name(name.encode())
    if (library.seccomp_attr_set(context, NO_NEW_PRIVS, 0) != 0 or
            library.seccomp_rule_add(context, ctypes.c_uint32(ERRNO | int(number)), call, 0) != 0 or library.seccomp_load(context) != 0):
        sys.exit(f"cannot refuse {name}")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
