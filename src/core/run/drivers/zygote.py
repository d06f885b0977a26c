# SPDX-License-Identifier: Apache-2.0
# A Python that has started, waits, and forks for each script: what that then runs finds itself in `python3 FILE`.
#
# _sandglass_preload is set above. Descriptor 4 is a socket to init. One child is always ready: it takes the next request from
# there, so that nobody waits for the fork. Between it and us stands its fork parent, which whatever the script leaves behind falls back to, and
# which tells init how the script ended. See docs/design/init-protocol.md for the messages.
#
# The first child is a rehearsal: we play init for it, and look at its end which pages it and its fork parent have written to. All others
# copy those as soon as they are forked, and not one by one when somebody waits.
_sandglass_typical = """
import os, sys
class A:
    def f(self, *values, **options):
        return [f"{value}" for value in values], {**options}
try:
    with open(__file__) as file:
        print(A().f(len(file.read()), x=1.5), file=sys.stdout)
    raise ValueError
except ValueError as problem:
    print(repr(problem), os.getcwd())
"""


def _sandglass():
    import _ctypes
    import _signal
    import _socket
    import _thread
    import _weakref
    import atexit
    import builtins
    import gc
    import io
    import os
    import resource  # os.wait4() uses it, too
    import sys
    import time

    for name in _sandglass_preload.split():
        try:
            __import__(name)
        except Exception:
            pass

    class Pointer(_ctypes._SimpleCData):
        _type_ = "P"

    class Room(_ctypes.Array):
        _type_ = Pointer
        _length_ = 4096

    library = _ctypes.dlopen(None, 0)
    prctl, memmove, leave, flush, madvise, fork, clone = (
        _ctypes.dlsym(library, name) for name in ("prctl", "memmove", "exit", "fflush", "madvise", "fork", "clone"))
    initialize, make_robust, make_lock, lock = (
        _ctypes.dlsym(library, "pthread_mutex" + name) for name in ("attr_init", "attr_setrobust", "_init", "_lock"))
    file = globals()["__file__"]
    loader = type(globals()["__loader__"])
    with open("/proc/self/stat", "rb") as stat:  # where the kernel reads our command line
        arguments = int(stat.read().rpartition(b")")[2].split()[45])
    with open("/proc/self/cmdline", "rb") as line:
        arguments += line.read().index(os.fsencode(file))

    def call(function, *values):
        return _ctypes.call_function(function, values)

    def place_of_next_library():
        """Where the loader puts a pointer to what it loads next; None with a C library that does not tell."""
        word = _ctypes.sizeof(Pointer)
        try:
            at = Pointer.from_address(_ctypes.dlsym(library, "_r_debug") + word)
        except OSError:
            return None
        while at.value:
            at = Pointer.from_address(at.value + 3 * word)
        return at

    def own_pages(pid):
        """Address and length of what a child has written to since it was forked, and shares with nobody."""
        size, found = os.sysconf("SC_PAGESIZE"), [0, 0]
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/pagemap", "rb", 0) as pages:
            for line in maps:
                places, rights = line.split()[:2]
                if rights != "rw-p":
                    continue
                at, end = [int(place, 16) for place in places.split("-")]
                pages.seek(at // size * 8)
                while at < end:
                    for flags in pages.read(min(end - at, size << 9) // size * 8)[7::8]:
                        if flags & 0xA1 == 0x81:  # present, not of a file, not shared
                            if found[-2] + found[-1] == at:
                                found[-1] += size
                            else:
                                found += [at, size]
                        at += size
        return b"".join([number.to_bytes(8, "little") for number in found])

    def copy(pages):
        numbers = memoryview(pages).cast("Q")
        for i in range(0, len(numbers), 2):
            call(madvise, Pointer(numbers[i]), Pointer(numbers[i + 1]), 23)  # MADV_POPULATE_WRITE, since Linux 5.14

    def take(source, size, room, pages):
        """A message, and its descriptors. While there is none the pages are copied."""
        try:
            return source.recvmsg(size, room, _socket.MSG_DONTWAIT)[:2]
        except BlockingIOError:
            copy(pages)
            return source.recvmsg(size, room)[:2]

    def hold(room):
        """Starts a process that shares our memory until we end, so that taking it apart is not part of our end.

        It waits for a lock that we have. The kernel gives it that when we end or execute something else, unless another seems to have
        the lock by then: so it stays until our fork parent ends it. Lock and stack are in the room."""
        _ctypes.Py_INCREF(room)  # it outlives us
        at = _ctypes.addressof(room)
        call(initialize, Pointer(at))
        call(make_robust, Pointer(at), 1)
        call(make_lock, Pointer(at + 64), Pointer(at))
        call(lock, Pointer(at + 64))
        mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, signals)
        holder = call(clone, Pointer(lock), Pointer(at + _ctypes.sizeof(room)), 0x100, Pointer(at + 64))  # CLONE_VM
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
        return max(holder, 0)

    def fds_of(ancillary):
        data = b"".join(data for level, kind, data in ancillary if kind == _socket.SCM_RIGHTS)
        return [int.from_bytes(data[i:i + 4], "little") for i in range(0, len(data), 4)]

    def message(status, is_alone, usage):
        numbers = status, is_alone, round((usage.ru_utime + usage.ru_stime) * 1e6), usage.ru_maxrss * 1024
        return b"".join([number.to_bytes(8, "little") for number in numbers])

    def reap_ended():
        """Whether children are left that have not ended."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return False
        return True

    def reap_others(children, holder, is_large):
        """Whether the script has left anything but its holder, whose end need not be waited for if the memory is small."""
        if not reap_ended():
            return False
        if not holder:
            return True
        left = os.pread(children, 1 << 16, 0).split()
        if left == [b"%d" % holder] and not is_large:
            return False
        end(holder, 0)
        return reap_ended()

    def end(holder, options):
        try:
            if os.waitpid(holder, os.WNOHANG)[0] == 0:
                os.kill(holder, _signal.SIGKILL)
                os.waitpid(holder, options)
        except ChildProcessError:
            pass

    def call_next():
        if not is_rehearsal:
            os.write(wake, b"+")

    def mind(child, link):
        """Waits for the script and everything that it leaves; tells init of its end."""
        _signal.pthread_sigmask(_signal.SIG_BLOCK, signals)
        children = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY) if can_hold else -1
        data, ancillary = take(link, 4, _socket.CMSG_SPACE(4), parent_pages)
        fds, holder = fds_of(ancillary), int.from_bytes(data, "little")
        has_ended = _signal.sigtimedwait([_signal.SIGCHLD], 0.003)
        if not has_ended:
            call_next()  # it takes longer: others may come meanwhile
        pid = -1
        while pid != child:
            pid, status, usage = os.wait4(-1, 0)
        is_alone = not reap_others(children, holder, usage.ru_maxrss > large_kb)
        if fds:
            os.write(fds[0], message(status, is_alone, usage))
        if is_rehearsal and fds:
            os.write(fds[0], b"ready")
            _signal.sigwait([_signal.SIGUSR1])
        _signal.sigtimedwait([_signal.SIGCHLD], 0.0004)  # those who wait for the end come first
        if has_ended:
            call_next()
        if holder:
            end(holder, os.WNOHANG)
        try:
            while os.wait():
                pass
        except ChildProcessError:
            os._exit(0)

    def parse(request):
        path, *texts = request[4:-1].split(b"\0")
        return path, dict([text.split(b"=", 1) for text in texts[int.from_bytes(request[:4], "little"):]])

    def put(path, flags, data):
        target = os.open(path, os.O_WRONLY | flags, 0o600)
        try:
            if os.write(target, data) != len(data):
                raise OSError
        finally:
            os.close(target)

    def set_environment(environment):
        have = os.environb
        for name in (b"PATH", b"HOME", b"USER", b"LOGNAME", b"SHELL", b"LC_CTYPE", b"SANDGLASS_STORAGE"):  # set by init, and by Python itself
            if name in have:
                environment.setdefault(name, have[name])
        for name in set(have).difference(environment):
            del have[name]
        for name, value in environment.items():
            if have.get(name) != value:
                have[name] = value

    def set_path(path):
        if len(path) == len(os.fsencode(file)):
            call(memmove, Pointer(arguments), path, len(path))
        path = os.fsdecode(path)
        sys.argv[0] = names["__file__"] = names["__loader__"].path = path
        if hasattr(sys, "orig_argv"):  # since Python 3.10
            sys.orig_argv[-1] = path

    def rehearse(fork_parent):
        """Plays init for the first child; what that and its fork parent say of their pages."""
        report, other_report = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        report.settimeout(5)
        child = 0
        output, other_output = os.pipe()
        script = os.memfd_create("script")
        os.write(script, _sandglass_typical.encode())
        path = os.fsencode(file)
        texts = [path[:-1] + (b"0" if path[-1:] == b"~" else b"~"), b"python3", b"x"]
        texts += [name + b"=" + value for name, value in os.environb.items()] + [b"SANDGLASS_EXECUTION_ID=exe_", b""]
        fds = b"".join([fd.to_bytes(4, "little") for fd in (other_output, other_output, script, other_report.fileno())])
        stage.sendmsg([b"\2\0\0\0" + b"\0".join(texts)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
        for one in (other_output, script, other_report.detach()):
            os.close(one)
        try:
            report.recv(8)
            report.send(b"x")
            text = b""
            while mark not in text:
                text += os.read(output, 1 << 16) or mark
            child = int(text.partition(mark)[2])
            pages = own_pages(child)
            os.kill(child, _signal.SIGKILL)
            report.recv(64)
            report.recv(16)
            parent_pages = own_pages(fork_parent)
            os.kill(fork_parent, _signal.SIGUSR1)
        except (OSError, ValueError):
            for pid in {child, fork_parent} - {0}:  # it could not write its script, or we may not look at it
                try:
                    os.kill(pid, _signal.SIGKILL)
                except ProcessLookupError:
                    pass
            return b"", b""
        finally:
            os.close(output)
        return pages, parent_pages

    site = sys.modules.get("site")
    large_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + (16 << 10)  # more is given back before the end is told
    can_hold = os.path.exists("/proc/thread-self/children")
    signals = _signal.valid_signals()
    control = _socket.socket(fileno=4)
    stage, source = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    waiting, wake = os.pipe()
    pages, parent_pages, mark, is_rehearsal = b"", b"", b"\n--\n", True
    next_library = place_of_next_library()
    # What is there now is not looked at again, not even at the end.
    gc.collect()
    gc.freeze()
    ready, wanted, used_at = 0, 1, 0
    while True:
        if is_rehearsal and ready:
            pages, parent_pages = rehearse(fork_parent)
            source, is_rehearsal, ready = control, False, 0
            stage.close()
            gc.freeze()
            control.send(b"ready")
        if ready >= wanted:
            if os.read(waiting, 1) != b"+":
                os._exit(0)
            now = time.monotonic()
            ready, wanted, used_at = ready - 1, 2 if now - used_at < 0.05 else wanted, now  # another for one who comes at once
            continue
        ready += 1
        link, other_link = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        fork_parent = call(fork)  # without what Python does for a child, since that has to do it again
        if fork_parent < 0:
            os._exit(0)  # no room for more processes: better no Python than one that does not answer
        if fork_parent == 0:
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            call(prctl, 36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
            try:
                child = os.fork()
            except OSError:
                os.write(wake, b"-")
                os._exit(0)
            if child == 0:
                break
            other_link.close()
            control.close()
            source.close()
            mind(child, link)
        link.close()
        other_link.close()
        _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # fork parents leave no trace

    main = type(sys)("__main__")
    names = main.__dict__
    names.update(__loader__=loader("__main__", file), __annotations__={}, __builtins__=builtins, __file__=file, __cached__=None)
    ours = set(sys.modules)
    random = sys.modules.get("numpy.random")
    if random:
        random.seed()
    room = Room()
    holder = hold(room) if can_hold else 0
    request, ancillary = take(source, 1 << 18, _socket.CMSG_SPACE(20), pages)
    if not request:
        os._exit(0)  # nobody wants it any more
    *stdio, script_fd, report = fds_of(ancillary)
    path, environment = parse(request)
    is_wanted = False
    try:
        script = os.pread(script_fd, os.fstat(script_fd).st_size, 0)
        put(path + b"~", os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, script)
        if len(stdio) == 3:
            os.dup2(stdio[0], 0)
            stream = io.open(0, "rb", closefd=False)
            stream.raw.name = "<stdin>"
            stream = io.TextIOWrapper(stream, sys.stdin.encoding, sys.stdin.errors, "\n")
            stream.mode = "r"
            sys.stdin = sys.__stdin__ = stream
        os.dup2(stdio[-2], 1)
        os.dup2(stdio[-1], 2)
        set_environment(environment)
        set_path(path)
        os.write(report, b"here")
        is_wanted = os.read(report, 1)
        if not is_wanted:
            os.unlink(path + b"~")
    finally:
        is_wanted or os._exit(0)

    os.rename(path + b"~", path)
    os.setsid()
    path = os.fsdecode(path)
    sys.modules["__main__"] = main
    other_link.sendmsg([holder.to_bytes(4, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, report.to_bytes(4, "little"))])
    for one in (control, source, stage, link, other_link):
        one.detach()
    os.closerange(3, 1 << 20)
    user_site = site and site.ENABLE_USER_SITE and site.USER_SITE
    if user_site and user_site not in sys.path and os.path.isdir(user_site):  # packages were installed since we have started
        others = sys.path[:]
        site.addsitedir(user_site)
        at = min([others.index(one) for one in site.getsitepackages() if one in others], default=len(others))
        sys.path[:] = others[:at] + sys.path[len(others):] + others[at:]
    status = 0
    try:
        exec(compile(script, path, "exec", dont_inherit=True), names)
    except SystemExit as end:
        if end.code is not None and type(end.code) is not int:
            raise
        status = end.code or 0
    except BaseException:
        hook = sys.excepthook

        def show(kind, problem, place):
            """Without the two frames that are ours."""
            sys.excepthook = hook
            place = place.tb_next.tb_next
            hook(kind, problem.with_traceback(place), place)

        sys.excepthook = show
        raise

    # What an interpreter does at its end, except for taking apart what was there before the script: that is most of the work.
    threading = sys.modules.get("threading")
    if threading:
        threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout and sys.stdout.flush()
        sys.stderr and sys.stderr.flush()
    except Exception:
        sys.exit(status)  # told by the interpreter itself
    for name in ("last_type", "last_value", "last_traceback"):
        sys.__dict__.pop(name, None)
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    modules = [_weakref.ref(sys.modules.pop(name)) for name in list(sys.modules)
               if (name not in ours or name == "__main__") and type(sys.modules[name]) is type(sys)]
    del main, names
    gc.collect()
    for module in reversed(modules):
        module = module()
        if module:
            for private in (True, False):
                for name in list(module.__dict__):
                    if name != "__builtins__" and (name[:1] == "_" and name[1:2] != "_") is private:
                        module.__dict__[name] = None
    module = None
    gc.collect()
    try:
        sys.stdout and sys.stdout.flush()
    except Exception:
        status = 120
    if is_rehearsal:
        os.unlink(path)
        os.write(1, mark + b"%d" % os.getpid())
        _signal.pause()
    room[8] = 1 << 32 | 1  # somebody else has the lock
    if next_library is not None and not next_library.value and not _thread._count():
        call(flush, None)
        os._exit(status & 0xFF)
    call(leave, status & 0xFF)  # a library that the script has loaded may have something to do, and this waits for no thread


_sandglass()
