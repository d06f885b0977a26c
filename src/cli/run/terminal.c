/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/terminal.h"

#include "base/macros.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct {
    int fd;
    struct termios before;
    struct termios raw;
    volatile sig_atomic_t active;
} terminal = { .fd = -1 };

/* Our own faults; signals from outside come through the loop. */
static const int fatal_signals[] = { SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE };
static struct sigaction fatal_before[ARRAY_LENGTH(fatal_signals)];

/* A process that is in the background would be stopped for touching its terminal. */
static void set_quietly(const struct termios *settings)
{
    int saved_errno = errno;
    sigset_t blocked, before;

    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTTOU);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    (void)tcsetattr(terminal.fd, TCSANOW, settings);
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = saved_errno;
}

void terminal_restore(void)
{
    if (!terminal.active)
        return;
    terminal.active = 0;
    set_quietly(&terminal.before);
}

void terminal_make_raw_again(void)
{
    if (terminal.active)
        set_quietly(&terminal.raw);
}

static void on_fatal_signal(int number)
{
    terminal_restore();
    for (size_t i = 0; i < ARRAY_LENGTH(fatal_signals); i++)
        if (fatal_signals[i] == number)
            sigaction(number, &fatal_before[i], NULL);
    raise(number);
}

static void restore_on_every_way_out(void)
{
    static bool done;
    struct sigaction action = { .sa_handler = on_fatal_signal };

    if (done)
        return;
    done = true;
    atexit(terminal_restore);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LENGTH(fatal_signals); i++)
        sigaction(fatal_signals[i], &action, &fatal_before[i]);
}

int terminal_make_raw(int fd, struct error *err)
{
    if (tcgetattr(fd, &terminal.before) < 0)
        return error_sys(err, "read the settings of the terminal");
    terminal.fd = fd;
    terminal.raw = terminal.before;
    cfmakeraw(&terminal.raw);
    restore_on_every_way_out();
    terminal.active = 1;
    if (tcsetattr(fd, TCSANOW, &terminal.raw) < 0) {
        terminal.active = 0;
        return error_sys(err, "change the settings of the terminal");
    }
    return 0;
}

int terminal_size(int fd, unsigned *out_columns, unsigned *out_rows)
{
    struct winsize size;

    if (ioctl(fd, TIOCGWINSZ, &size) < 0 || size.ws_col == 0 || size.ws_row == 0)
        return -1;
    *out_columns = size.ws_col;
    *out_rows = size.ws_row;
    return 0;
}
