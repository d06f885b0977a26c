/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into the daemon by sweep.py: one call of the C library fails, is short, or kills the
 * process.
 *
 * SANDGLASS_FAULT_TRACE names a file that takes a `struct trace`: what the process called, in
 * order, so that the sweep knows what can be made to fail, and whether the fault was reached.
 * SANDGLASS_FAULT is CALL@MODULE+OFFSET#OCCURRENCE=ACTION: the OCCURRENCE-th call from that place
 * of the program. Without it nothing fails. Children do not count: the launcher is started without
 * an environment, and until then it is told by its pid.
 */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The same order in sweep.py. */
enum call {
    CALL_WRITE,
    CALL_PWRITE,
    CALL_WRITEV,
    CALL_SEND,
    CALL_SENDMSG,
    CALL_SPLICE,
    CALL_SENDFILE,
    CALL_FSYNC,
    CALL_FDATASYNC,
    CALL_FTRUNCATE,
    CALL_FALLOCATE,
    CALL_OPEN,
    CALL_READ,
    CALL_PREAD,
    CALL_RECV,
    CALL_RECVMSG,
    CALL_ACCEPT,
    CALL_SOCKET,
    CALL_PIPE,
    CALL_MEMFD,
    CALL_CONNECT,
    CALL_RENAME,
    CALL_LINK,
    CALL_UNLINK,
    CALL_MKDIR,
    CALL_ALLOC,
    CALLS,
};

static const char *const call_names[CALLS] = {
    "write",  "pwrite",    "writev",    "send",      "sendmsg", "splice", "sendfile",
    "fsync",  "fdatasync", "ftruncate", "fallocate", "open",    "read",   "pread",
    "recv",   "recvmsg",   "accept",    "socket",    "pipe",    "memfd",  "connect",
    "rename", "link",      "unlink",    "mkdir",     "alloc",
};

/* What a call works on: the sweep chooses errors that can happen there. */
enum kind { KIND_OTHER, KIND_FILE, KIND_STREAM, KIND_PACKET, KIND_PIPE, KIND_CREATE };

enum action {
    ACTION_NONE,
    ACTION_ERRNO,
    ACTION_SHORT,
    ACTION_KILL_BEFORE,
    ACTION_KILL_AFTER,
    ACTION_NO_FDS,
    ACTION_DISK_FULL,
    ACTION_NO_FILES
};

/* Until it is over, nothing that needs space, or a descriptor, works. */
enum { EXHAUSTED_CALLS = 40 };

struct trace {
    _Atomic uint64_t count;
    _Atomic uint64_t fired;
    _Atomic uint64_t lasting; /* calls that failed because of ACTION_DISK_FULL or ACTION_NO_FILES */
    _Atomic uint64_t limit;   /* entries that fit; 0 when they are not wanted */
    uint64_t entries[];
};

struct module {
    uintptr_t begin, end;
};

static struct {
    bool is_on;
    pid_t pid;
    struct trace *trace;
    struct module modules[32];
    unsigned module_count;
    enum call call;
    unsigned module;
    uintptr_t offset;
    uint64_t occurrence;
    enum action action;
    int error;
    _Atomic uint64_t seen;
} faults;

/* --- which one ------------------------------------------------------------------------------ */

static int find_module(struct dl_phdr_info *info, size_t size, void *user)
{
    struct module *module = &faults.modules[faults.module_count];

    (void)size;
    (void)user;
    if (faults.module_count == sizeof(faults.modules) / sizeof(*faults.modules))
        return 1;
    module->begin = (uintptr_t)info->dlpi_addr;
    module->end = module->begin;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t end = (uintptr_t)(info->dlpi_addr + part->p_vaddr + part->p_memsz);

        if (part->p_type == PT_LOAD && end > module->end)
            module->end = end;
    }
    faults.module_count++;
    return 0;
}

static int errno_of(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } rows[] = {
        { "EIO", EIO },
        { "ENOSPC", ENOSPC },
        { "EMFILE", EMFILE },
        { "EINTR", EINTR },
        { "ENOMEM", ENOMEM },
        { "EAGAIN", EAGAIN },
        { "EPIPE", EPIPE },
        { "ECONNRESET", ECONNRESET },
        { "ENOBUFS", ENOBUFS },
        { "ECONNABORTED", ECONNABORTED },
        { "ECONNREFUSED", ECONNREFUSED },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].number;
    return 0;
}

static enum action action_of(const char *name)
{
    static const struct {
        const char *name;
        enum action action;
    } rows[] = {
        { "short", ACTION_SHORT },           { "kill-before", ACTION_KILL_BEFORE },
        { "kill-after", ACTION_KILL_AFTER }, { "no-fds", ACTION_NO_FDS },
        { "disk-full", ACTION_DISK_FULL },   { "no-files", ACTION_NO_FILES },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].action;
    faults.error = errno_of(name);
    return faults.error ? ACTION_ERRNO : ACTION_NONE;
}

static void parse_fault(const char *text)
{
    char call[16], action[16];
    unsigned long offset;
    unsigned long long occurrence;

    if (sscanf(text, "%15[a-z]@%u+%lx#%llu=%15s", call, &faults.module, &offset, &occurrence,
               action) != 5) {
        fprintf(stderr, "SANDGLASS_FAULT is not CALL@MODULE+OFFSET#OCCURRENCE=ACTION: %s\n", text);
        _exit(99);
    }
    faults.offset = offset;
    faults.occurrence = occurrence;
    for (faults.call = 0; faults.call < CALLS && strcmp(call_names[faults.call], call) != 0;)
        faults.call++;
    faults.action = action_of(action);
    if (faults.call == CALLS || faults.action == ACTION_NONE) {
        fprintf(stderr, "SANDGLASS_FAULT: unknown call or action: %s\n", text);
        _exit(99);
    }
}

__attribute__((constructor)) static void setup(void)
{
    const char *path = getenv("SANDGLASS_FAULT_TRACE");
    const char *fault = getenv("SANDGLASS_FAULT");
    int fd = path ? (int)syscall(SYS_open, path, O_RDWR | O_CLOEXEC) : -1;
    struct stat status;

    if (fd < 0 || fstat(fd, &status) < 0)
        return;
    faults.trace = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (faults.trace == MAP_FAILED)
        return;
    faults.trace->limit = ((size_t)status.st_size - sizeof(struct trace)) / sizeof(uint64_t);
    dl_iterate_phdr(find_module, NULL);
    faults.pid = getpid();
    if (fault)
        parse_fault(fault);
    faults.is_on = true;
}

static uint64_t site_of(const void *address)
{
    uintptr_t at = (uintptr_t)address;

    for (unsigned i = 0; i < faults.module_count; i++)
        if (at >= faults.modules[i].begin && at < faults.modules[i].end)
            return (uint64_t)i << 36 | (at - faults.modules[i].begin);
    return (uint64_t)63 << 36;
}

static enum kind kind_of_fd(int fd)
{
    struct stat status;
    int type = 0;
    socklen_t length = sizeof(type);

    if (fd == STDERR_FILENO || fstat(fd, &status) < 0)
        return KIND_OTHER; /* the log is what tells what happened */
    if (S_ISREG(status.st_mode))
        return KIND_FILE;
    if (S_ISFIFO(status.st_mode))
        return KIND_PIPE;
    if (!S_ISSOCK(status.st_mode) || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) < 0)
        return KIND_OTHER;
    return type == SOCK_STREAM ? KIND_STREAM : KIND_PACKET;
}

static bool needs_space(enum call call, enum kind kind)
{
    if (call == CALL_WRITE || call == CALL_PWRITE || call == CALL_WRITEV || call == CALL_SPLICE)
        return kind == KIND_FILE;
    return call == CALL_FALLOCATE || call == CALL_MKDIR ||
           (call == CALL_OPEN && kind == KIND_CREATE);
}

static bool needs_descriptor(enum call call)
{
    return call == CALL_OPEN || call == CALL_ACCEPT || call == CALL_SOCKET || call == CALL_PIPE ||
           call == CALL_MEMFD;
}

/* What lasts from the moment it was reached. */
static enum action lasting_action(enum call call, enum kind kind)
{
    bool concerned = faults.action == ACTION_DISK_FULL ? needs_space(call, kind)
                                                       : needs_descriptor(call);

    if ((faults.action != ACTION_DISK_FULL && faults.action != ACTION_NO_FILES) ||
        !faults.trace->fired || !concerned ||
        atomic_fetch_add(&faults.trace->lasting, 1) >= EXHAUSTED_CALLS)
        return ACTION_NONE;
    errno = faults.action == ACTION_DISK_FULL ? ENOSPC : EMFILE;
    return ACTION_ERRNO;
}

/* What is to be done with this call; with ACTION_ERRNO errno is set. */
static enum action begin(enum call call, enum kind kind, const void *caller)
{
    uint64_t site = site_of(caller);
    uint64_t index = atomic_fetch_add(&faults.trace->count, 1);

    if (index < faults.trace->limit)
        faults.trace->entries[index] = (uint64_t)call << 56 | (uint64_t)kind << 48 | site;
    if (faults.action == ACTION_NONE)
        return ACTION_NONE;
    if (call != faults.call || site != ((uint64_t)faults.module << 36 | faults.offset) ||
        atomic_fetch_add(&faults.seen, 1) + 1 != faults.occurrence)
        return lasting_action(call, kind);
    faults.trace->fired = 1;
    if (faults.action == ACTION_KILL_BEFORE)
        syscall(SYS_kill, faults.pid, SIGKILL);
    if (faults.action == ACTION_DISK_FULL || faults.action == ACTION_NO_FILES)
        return lasting_action(call, kind);
    errno = faults.error;
    return faults.action;
}

static bool is_ours(void)
{
    return faults.is_on && getpid() == faults.pid;
}

static long end(enum action action, long result)
{
    if (action == ACTION_KILL_AFTER)
        syscall(SYS_kill, faults.pid, SIGKILL);
    return result;
}

/* A peer that is gone is gone for both directions. */
static long fail_transfer(int fd)
{
    int number = errno;

    if (number == EPIPE || number == ECONNRESET)
        (void)shutdown(fd, SHUT_RDWR);
    errno = number;
    return -1;
}

/* The value of a call with a length, on a descriptor. */
#define TRANSFER(call, fd, length, expression)                                                    \
    do {                                                                                          \
        enum action action = is_ours() ? begin(call, kind_of_fd(fd), __builtin_return_address(0)) \
                                       : ACTION_NONE;                                             \
                                                                                                  \
        if (action == ACTION_ERRNO)                                                               \
            return fail_transfer(fd);                                                             \
        if (action == ACTION_SHORT && (length) > 1)                                               \
            (length) = ((length) + 1) / 2;                                                        \
        return end(action, expression);                                                           \
    } while (0)

#define SIMPLE(call, kind, expression)                                                  \
    do {                                                                                \
        enum action action = is_ours() ? begin(call, kind, __builtin_return_address(0)) \
                                       : ACTION_NONE;                                   \
                                                                                        \
        if (action == ACTION_ERRNO)                                                     \
            return -1;                                                                  \
        return (int)end(action, expression);                                            \
    } while (0)

/* --- bytes ---------------------------------------------------------------------------------- */

#define EXPORT __attribute__((visibility("default")))
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"

EXPORT ssize_t write(int fd, const void *bytes, size_t length)
{
    TRANSFER(CALL_WRITE, fd, length, syscall(SYS_write, fd, bytes, length));
}

EXPORT ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset)
{
    TRANSFER(CALL_PWRITE, fd, length, syscall(SYS_pwrite64, fd, bytes, length, offset));
}

EXPORT ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    TRANSFER(CALL_PWRITE, fd, length, syscall(SYS_pwrite64, fd, bytes, length, offset));
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
    TRANSFER(CALL_WRITEV, fd, count, syscall(SYS_writev, fd, parts, count));
}

EXPORT ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
    TRANSFER(CALL_SEND, fd, length, syscall(SYS_sendto, fd, bytes, length, flags, NULL, 0));
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct msghdr copy = *message;

    TRANSFER(CALL_SENDMSG, fd, copy.msg_iovlen, syscall(SYS_sendmsg, fd, &copy, flags));
}

EXPORT ssize_t splice(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t length,
                      unsigned flags)
{
    TRANSFER(CALL_SPLICE, to, length,
             syscall(SYS_splice, from, from_offset, to, to_offset, length, flags));
}

EXPORT ssize_t sendfile64(int to, int from, off64_t *offset, size_t length)
{
    TRANSFER(CALL_SENDFILE, to, length, syscall(SYS_sendfile, to, from, offset, length));
}

EXPORT ssize_t read(int fd, void *bytes, size_t length)
{
    TRANSFER(CALL_READ, fd, length, syscall(SYS_read, fd, bytes, length));
}

EXPORT ssize_t __read_chk(int fd, void *bytes, size_t length, size_t room)
{
    (void)room;
    TRANSFER(CALL_READ, fd, length, syscall(SYS_read, fd, bytes, length));
}

EXPORT ssize_t pread64(int fd, void *bytes, size_t length, off_t offset)
{
    TRANSFER(CALL_PREAD, fd, length, syscall(SYS_pread64, fd, bytes, length, offset));
}

EXPORT ssize_t pread(int fd, void *bytes, size_t length, off_t offset)
{
    TRANSFER(CALL_PREAD, fd, length, syscall(SYS_pread64, fd, bytes, length, offset));
}

EXPORT ssize_t __pread64_chk(int fd, void *bytes, size_t length, off_t offset, size_t room)
{
    (void)room;
    TRANSFER(CALL_PREAD, fd, length, syscall(SYS_pread64, fd, bytes, length, offset));
}

EXPORT ssize_t recv(int fd, void *bytes, size_t length, int flags)
{
    TRANSFER(CALL_RECV, fd, length, syscall(SYS_recvfrom, fd, bytes, length, flags, NULL, NULL));
}

EXPORT ssize_t __recv_chk(int fd, void *bytes, size_t length, size_t room, int flags)
{
    (void)room;
    TRANSFER(CALL_RECV, fd, length, syscall(SYS_recvfrom, fd, bytes, length, flags, NULL, NULL));
}

/* As the kernel does it when there is no free descriptor. */
static void drop_descriptors(struct msghdr *message)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        size_t count = part->cmsg_type == SCM_RIGHTS ? (part->cmsg_len - CMSG_LEN(0)) / sizeof(int)
                                                     : 0;

        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
            close(fd);
            message->msg_flags |= MSG_CTRUNC;
        }
    }
    message->msg_controllen = 0;
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    enum action action =
        is_ours() ? begin(CALL_RECVMSG, kind_of_fd(fd), __builtin_return_address(0)) : ACTION_NONE;
    ssize_t result;

    if (action == ACTION_ERRNO)
        return fail_transfer(fd);
    result = syscall(SYS_recvmsg, fd, message, flags);
    if (action == ACTION_NO_FDS && result >= 0)
        drop_descriptors(message);
    return end(action, result);
}

/* --- descriptors and names -------------------------------------------------------------------- */

static mode_t mode_of(int flags, va_list rest)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

static enum kind kind_of_open(int flags)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? KIND_CREATE : KIND_FILE;
}

#define OPEN(dir, path, flags)                                                               \
    do {                                                                                     \
        va_list rest;                                                                        \
        mode_t mode;                                                                         \
                                                                                             \
        va_start(rest, flags);                                                               \
        mode = mode_of(flags, rest);                                                         \
        va_end(rest);                                                                        \
        SIMPLE(CALL_OPEN, kind_of_open(flags), syscall(SYS_openat, dir, path, flags, mode)); \
    } while (0)

EXPORT int open(const char *path, int flags, ...)
{
    OPEN(AT_FDCWD, path, flags);
}

EXPORT int open64(const char *path, int flags, ...)
{
    OPEN(AT_FDCWD, path, flags);
}

EXPORT int openat(int dir, const char *path, int flags, ...)
{
    OPEN(dir, path, flags);
}

EXPORT int openat64(int dir, const char *path, int flags, ...)
{
    OPEN(dir, path, flags);
}

EXPORT int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    SIMPLE(CALL_ACCEPT, KIND_OTHER, syscall(SYS_accept4, fd, address, length, flags));
}

EXPORT int socket(int domain, int type, int protocol)
{
    SIMPLE(CALL_SOCKET, KIND_OTHER, syscall(SYS_socket, domain, type, protocol));
}

EXPORT int pipe2(int fds[2], int flags)
{
    SIMPLE(CALL_PIPE, KIND_OTHER, syscall(SYS_pipe2, fds, flags));
}

EXPORT int memfd_create(const char *name, unsigned flags)
{
    SIMPLE(CALL_MEMFD, KIND_OTHER, syscall(SYS_memfd_create, name, flags));
}

EXPORT int connect(int fd, const struct sockaddr *address, socklen_t length)
{
    SIMPLE(CALL_CONNECT, KIND_OTHER, syscall(SYS_connect, fd, address, length));
}

EXPORT int fsync(int fd)
{
    SIMPLE(CALL_FSYNC, KIND_FILE, syscall(SYS_fsync, fd));
}

EXPORT int fdatasync(int fd)
{
    SIMPLE(CALL_FDATASYNC, KIND_FILE, syscall(SYS_fdatasync, fd));
}

EXPORT int ftruncate64(int fd, off_t length)
{
    SIMPLE(CALL_FTRUNCATE, KIND_FILE, syscall(SYS_ftruncate, fd, length));
}

EXPORT int fallocate64(int fd, int mode, off_t offset, off_t length)
{
    SIMPLE(CALL_FALLOCATE, KIND_FILE, syscall(SYS_fallocate, fd, mode, offset, length));
}

EXPORT int rename(const char *from, const char *to)
{
    SIMPLE(CALL_RENAME, KIND_OTHER, syscall(SYS_rename, from, to));
}

EXPORT int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    SIMPLE(CALL_RENAME, KIND_OTHER, syscall(SYS_renameat, from_dir, from, to_dir, to));
}

EXPORT int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    SIMPLE(CALL_LINK, KIND_OTHER, syscall(SYS_linkat, from_dir, from, to_dir, to, flags));
}

EXPORT int unlink(const char *path)
{
    SIMPLE(CALL_UNLINK, KIND_OTHER, syscall(SYS_unlink, path));
}

EXPORT int unlinkat(int dir, const char *path, int flags)
{
    SIMPLE(CALL_UNLINK, KIND_OTHER, syscall(SYS_unlinkat, dir, path, flags));
}

EXPORT int mkdir(const char *path, mode_t mode)
{
    SIMPLE(CALL_MKDIR, KIND_OTHER, syscall(SYS_mkdir, path, mode));
}

EXPORT int mkdirat(int dir, const char *path, mode_t mode)
{
    SIMPLE(CALL_MKDIR, KIND_OTHER, syscall(SYS_mkdirat, dir, path, mode));
}

/* --- memory --------------------------------------------------------------------------------- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

#define ALLOCATE(expression)                                                                      \
    do {                                                                                          \
        enum action action =                                                                      \
            is_ours() ? begin(CALL_ALLOC, KIND_OTHER, __builtin_return_address(0)) : ACTION_NONE; \
                                                                                                  \
        return action == ACTION_ERRNO ? NULL : (expression);                                      \
    } while (0)

EXPORT void *malloc(size_t size)
{
    ALLOCATE(__libc_malloc(size));
}

EXPORT void *calloc(size_t count, size_t size)
{
    ALLOCATE(__libc_calloc(count, size));
}

EXPORT void *realloc(void *memory, size_t size)
{
    ALLOCATE(__libc_realloc(memory, size));
}
