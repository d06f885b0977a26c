# A Python that has started, waits, and forks for each script: what that then runs finds itself in `python3 FILE`.
#
# _sandglass_preload is set above. Descriptor 4 is a socket to init. One child is always ready: it takes the next request from
# there, so that nobody waits for the fork. Between it and us stands its minder, which whatever the script leaves behind falls back to, and
# which tells init how the script ended. See docs/init-protocol.md for the messages.
def _sandglass():
    import _ctypes
    import _signal
    import _socket
    import _weakref
    import atexit
    import builtins
    import gc
    import io
    import os
    import resource  # os.wait4() would import it each time
    import sys
    import time

    for name in _sandglass_preload.split():
        try:
            __import__(name)
        except Exception:
            pass

    class Pointer(_ctypes._SimpleCData):
        _type_ = "P"

    library = _ctypes.dlopen(None, 0)
    prctl, memmove, leave = (_ctypes.dlsym(library, name) for name in ("prctl", "memmove", "exit"))
    file = globals()["__file__"]
    loader = type(globals()["__loader__"])
    with open("/proc/self/stat", "rb") as stat:  # where the kernel reads our command line
        arguments = int(stat.read().rpartition(b")")[2].split()[45])
    with open("/proc/self/cmdline", "rb") as line:
        arguments += line.read().index(os.fsencode(file))

    def call(function, *values):
        return _ctypes.call_function(function, values)

    def fds_of(ancillary):
        data = b"".join(data for level, kind, data in ancillary if kind == _socket.SCM_RIGHTS)
        return [int.from_bytes(data[i:i + 4], "little") for i in range(0, len(data), 4)]

    def message(status, is_alone, usage):
        numbers = status, is_alone, round((usage.ru_utime + usage.ru_stime) * 1e6), usage.ru_maxrss * 1024
        return b"".join([number.to_bytes(8, "little") for number in numbers])

    def reap(options):
        try:
            return os.wait4(-1, options)
        except ChildProcessError:
            return None

    def mind(child, link, wake):
        """Waits for the script and everything that it leaves; tells init of its end."""
        _signal.pthread_sigmask(_signal.SIG_BLOCK, signals)
        message(0, 0, reap(os.WNOHANG)[2])  # as below, so that the pages are copied now
        fds = fds_of(link.recvmsg(1, _socket.CMSG_SPACE(4))[1])
        has_ended = _signal.sigtimedwait([_signal.SIGCHLD], 0.003)
        if not has_ended:
            os.write(wake, b"+")  # it takes longer: others may come meanwhile
        pid = -1
        while pid != child:
            pid, status, usage = reap(0)
        other = reap(os.WNOHANG)
        while other and other[0]:
            other = reap(os.WNOHANG)
        if fds:
            os.write(fds[0], message(status, 0 if other else 1, usage))
        if has_ended:
            _signal.sigtimedwait([_signal.SIGCHLD], 0.0004)  # those who wait for the end come first
            os.write(wake, b"+")
        while reap(0):
            pass
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
        for name in (b"PATH", b"HOME", b"USER", b"LOGNAME", b"SHELL", b"LC_CTYPE"):  # set by init, and by Python itself
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
        sys.argv[0] = sys.orig_argv[-1] = names["__file__"] = names["__loader__"].path = path
        return path

    signals = _signal.valid_signals()
    control = _socket.socket(fileno=4)
    waiting, wake = os.pipe()
    # What is there now is not looked at again, not even at the end.
    gc.collect()
    gc.freeze()
    control.send(b"ready")
    ready, wanted, used_at = 0, 1, 0
    while True:
        if ready >= wanted:
            if not os.read(waiting, 1):
                os._exit(0)
            now = time.monotonic()
            ready, wanted, used_at = ready - 1, 2 if now - used_at < 0.05 else wanted, now  # another for one who comes at once
            continue
        ready += 1
        link, other_link = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            call(prctl, 36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
            child = os.fork()
            if child == 0:
                break
            other_link.close()
            control.close()
            mind(child, link, wake)
        link.close()
        other_link.close()
        _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # minders leave no trace

    main = type(sys)("__main__")
    names = main.__dict__
    names.update(__loader__=loader("__main__", file), __annotations__={}, __builtins__=builtins, __file__=file, __cached__=None)
    ours = set(sys.modules)
    def take(flags):
        return control.recvmsg(1 << 18, _socket.CMSG_SPACE(20), flags)[:2]

    try:
        request, ancillary = take(_socket.MSG_DONTWAIT)
    except BlockingIOError:
        # The same as below with nothing to do: the pages that it writes to are copied now, not when somebody waits.
        fake = b"\2\0\0\0" + os.fsencode(file) + b"\0python3\0x\0"
        fake += b"".join([name + b"=" + value + b"\0" for name, value in os.environb.items()])
        path, environment = parse(fake)
        put(os.devnull, 0, fake)
        environment[b"SANDGLASS_EXECUTION_ID"] = b"exe_"
        set_environment(environment)
        path = set_path(path)
        exec(compile(b"def f(x):\n    return [x, {}]\nf(1)", path, "exec", dont_inherit=True), {"__builtins__": builtins})
        gc.collect()
        request, ancillary = take(0)
    if not request:
        os._exit(0)  # nobody wants it any more
    *stdio, script_fd, report = fds_of(ancillary)
    path, environment = parse(request)
    is_wanted = False
    try:
        script = os.pread(script_fd, os.fstat(script_fd).st_size, 0)
        put(path + b"~", os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, script)
        os.write(report, b"here")
        is_wanted = os.read(report, 1)
        if not is_wanted:
            os.unlink(path + b"~")
    finally:
        is_wanted or os._exit(0)

    os.rename(path + b"~", path)
    os.setsid()
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
    path = set_path(path)
    random = sys.modules.get("numpy.random")
    if random:
        random.seed()
    sys.modules["__main__"] = main
    other_link.sendmsg([b"x"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, report.to_bytes(4, "little"))])
    for one in (control, link, other_link):
        one.detach()
    os.closerange(3, 1 << 20)
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
    call(leave, status & 0xFF)


_sandglass()
