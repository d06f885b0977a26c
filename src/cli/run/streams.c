/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/streams.h"

#include "cli/run/follower.h"

#include <unistd.h>

struct streams {
    struct cli *cli; /* borrowed */
    struct follower first;
    struct follower second; /* stderr, when both are copied */
    unsigned running;
    struct error err;
};

static void streams_finished(struct streams *streams, const struct follower *follower)
{
    if (follower->err.code != ERR_NONE)
        streams->err = follower->err;
    if (--streams->running == 0)
        loop_stop(streams->cli->loop);
}

static void on_first_finished(struct follower *follower)
{
    streams_finished(container_of(follower, struct streams, first), follower);
}

static void on_second_finished(struct follower *follower)
{
    streams_finished(container_of(follower, struct streams, second), follower);
}

static void on_closed(struct follower *follower)
{
    loop_stop(follower->cli->loop);
}

int streams_copy(struct cli *cli, const struct streams_options *options, struct error *err)
{
    struct streams streams = { .cli = cli, .running = options->which == STREAMS_BOTH ? 2 : 1 };
    struct follower_options follow = {
        .session = options->session,
        .execution = options->execution,
        .stream = options->which == STREAMS_STDERR   ? "stderr"
                  : options->which == STREAMS_MERGED ? "merged"
                                                     : "stdout",
        .offset = options->offset,
        .follow = options->follow,
        .fd = STDOUT_FILENO,
    };

    if (cli_connect(cli, err) < 0)
        return -1;
    follower_start(&streams.first, cli, &follow, on_first_finished, on_closed);
    if (options->which == STREAMS_BOTH) {
        follow.stream = "stderr";
        follow.fd = STDERR_FILENO;
        follower_start(&streams.second, cli, &follow, on_second_finished, NULL);
    }
    loop_run(cli->loop);
    (void)follower_check_written(&streams.first, &streams.err);
    follower_fini(&streams.first);
    follower_fini(&streams.second);
    if (streams.err.code == ERR_NONE)
        return 0;
    *err = streams.err;
    return -1;
}
