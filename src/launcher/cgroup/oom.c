/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/cgroup/oom.h"

#include "launcher/state.h"
#include "launcher/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_text(int file, const char *text)
{
    if (file >= 0)
        (void)!pwrite(file, text, strlen(text), 0);
}

static void write_number(int file, int number)
{
    char text[OOM_SCORE_TEXT];

    snprintf(text, sizeof(text), "%d", number);
    write_text(file, text);
}

static long read_text(int file, char text[OOM_SCORE_TEXT])
{
    memset(text, 0, OOM_SCORE_TEXT);
    return pread(file, text, OOM_SCORE_TEXT - 1, 0) > 0 ? strtol(text, NULL, 10)
                                                        : OOM_SCORE_PROGRAMS;
}

void oom_score_open(struct oom_score *score, const struct state *state, bool may_lower)
{
    *score = (struct oom_score){ .file = -1 };
    if (!may_lower)
        return;
    score->file = openat(state->proc, "self/oom_score_adj", O_RDWR | O_CLOEXEC);
    if (score->file < 0)
        return;
    if (read_text(score->file, score->own) < OOM_SCORE_FLOOR)
        return;
    close(score->file);
    score->file = -1;
}

void oom_score_lend(const struct oom_score *score)
{
    write_number(score->file, OOM_SCORE_FLOOR);
}

void oom_score_restore(const struct oom_score *score)
{
    write_text(score->file, score->own);
}

void oom_score_raise(const struct state *state)
{
    int file = openat(state->proc, "self/oom_score_adj", O_RDWR | O_CLOEXEC);
    char text[OOM_SCORE_TEXT];

    if (file < 0)
        return;
    if (read_text(file, text) < OOM_SCORE_PROGRAMS)
        write_number(file, OOM_SCORE_PROGRAMS);
    close(file);
}
