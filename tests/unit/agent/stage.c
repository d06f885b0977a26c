/* SPDX-License-Identifier: Apache-2.0 */
#include "stage.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void on_done(struct agent_request *request)
{
    container_of(request, struct asked, request)->answers++;
}

static void on_exited(struct agent *agent, uint64_t number UNUSED, const struct agent_exit *end)
{
    struct stage *stage = agent_user(agent);

    stage->exited++;
    stage->end = *end;
    if (stage->frees_in_callback) {
        agent_free(stage->agent);
        stage->agent = NULL;
    }
}

static void on_process(struct agent *agent, uint64_t number UNUSED, int pid UNUSED,
                       const struct agent_pipes *pipes, const struct agent_exit *end)
{
    struct stage *stage = agent_user(agent);

    stage->listed++;
    stage->bases = pipes->bases;
    if (end)
        stage->end = *end;
    fd_close(pipes->input);
    fd_close(pipes->output);
    fd_close(pipes->errors);
}

static void on_taken(struct agent *agent, uint64_t number UNUSED, uint64_t total)
{
    struct stage *stage = agent_user(agent);

    stage->taken = total;
}

static void on_lost(struct agent *agent, const struct error *err UNUSED)
{
    struct stage *stage = agent_user(agent);

    stage->lost++;
}

static const struct agent_handler handler = {
    .on_exited = on_exited,
    .on_process = on_process,
    .on_taken = on_taken,
    .on_lost = on_lost,
};

void turn(struct stage *stage)
{
    for (int i = 0; i < 3; i++)
        loop_turn(stage->loop, 0);
}

void say(struct stage *stage, const void *bytes, size_t length, const int *fds, unsigned count)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(8 * sizeof(int))];
    } control;
    struct iovec part = { (void *)(uintptr_t)bytes, length };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

    if (count) {
        control.header = (struct cmsghdr){ CMSG_LEN(count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    }
    assert_int_equal(sendmsg(stage->init, &message, MSG_NOSIGNAL), length);
    turn(stage);
}

void greet_as(struct stage *stage, uint32_t features)
{
    struct protocol_hello hello = {
        .header = protocol_header(PROTOCOL_HELLO, sizeof(hello), 0, 0),
        .oldest = PROTOCOL_VERSION,
        .newest = PROTOCOL_VERSION,
        .features = features,
        .bounding = 5,
    };

    say(stage, &hello, sizeof(hello), NULL, 0);
}

void greet(struct stage *stage)
{
    greet_as(stage, 0);
}

int open_stage(void **state)
{
    struct stage *stage = calloc(1, sizeof(*stage));
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    stage->loop = loop_new(&clock_system);
    stage->agent = agent_new(stage->loop, ends[0], &handler, stage);
    stage->daemon = ends[0];
    stage->init = ends[1];
    *state = stage;
    return 0;
}

int close_stage(void **state)
{
    struct stage *stage = *state;

    agent_free(stage->agent);
    loop_free(stage->loop);
    fd_close(stage->init);
    free(stage);
    return 0;
}

uint64_t hear(struct stage *stage, enum protocol_type type)
{
    static _Alignas(8) char bytes[PROTOCOL_MAX_MESSAGE];
    ssize_t length = recv(stage->init, bytes, sizeof(bytes), MSG_DONTWAIT);

    assert_true(length > 0);
    assert_int_equal(protocol_peek(bytes, (size_t)length), type);
    return ((struct protocol_header *)bytes)->request;
}

size_t count_descriptors(void)
{
    size_t count = 0;

    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

void ask_to_start(struct stage *stage, struct asked *asked, bool terminal)
{
    struct agent_start start = {
        .number = 41,
        .argv = (const char *const[]){ "true", NULL },
        .terminal = terminal,
    };

    *asked = (struct asked){ 0 };
    agent_start(stage->agent, &start, &asked->request, on_done);
}

uint64_t begin_start(struct stage *stage, struct asked *asked, bool terminal)
{
    ask_to_start(stage, asked, terminal);
    return hear(stage, PROTOCOL_START);
}

struct protocol_started started_for(uint64_t request, uint32_t flags)
{
    return (struct protocol_started){
        .header = protocol_header(PROTOCOL_STARTED, sizeof(struct protocol_started), 41, request),
        .flags = flags,
        .pid = 3,
    };
}
