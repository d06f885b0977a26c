/* SPDX-License-Identifier: Apache-2.0 */
#include "service/ports.h"

#include "harness/fake_programs.h"
#include "harness/world.h"

#include "core/sandbox/sandbox.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { PORT = 8080 };

static struct world world;

static int setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    world_init(&world);
    world_start(&world);
    fake_programs_serve(PORT);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_fini(&world);
    fake_programs_clear();
    return 0;
}

static struct session *open_with_sandbox(void)
{
    struct session *session = world_open_simple(&world, "ann", NULL);

    session_preload(session);
    world_settle(&world);
    assert_non_null(session_sandbox(session));
    return session;
}

/* --- what listens ---------------------------------------------------------------------------- */

struct looking {
    struct port_list list;
    unsigned answers;
};

static void on_listed(struct port_list *list)
{
    container_of(list, struct looking, list)->answers++;
}

/* In small steps: between two of them init's answer is read. */
static void look(struct looking *looking, struct session *session)
{
    looking->answers = 0;
    port_list_start(&looking->list, world.core, session, on_listed);
    assert_int_equal(looking->answers, 0);
    for (int i = 0; i < 50 && !looking->answers; i++) {
        world_settle(&world);
        world_advance(&world, 1);
    }
    assert_int_equal(looking->answers, 1);
}

static void ports_are_listed_and_looking_is_no_use(void **state)
{
    struct session *session = open_with_sandbox();
    int64_t before_us = session_last_activity(session).wall_us;
    struct looking looking;

    (void)state;
    world_advance(&world, 1000);
    look(&looking, session);
    assert_int_equal(looking.list.err.code, ERR_NONE);
    assert_int_equal(looking.list.count, 1);
    assert_int_equal(looking.list.ports[0], PORT);
    port_list_stop(&looking.list);
    assert_int_equal(session_last_activity(session).wall_us, before_us);
    assert_int_equal(session_active_holds(session), 0);
}

static void without_a_sandbox_nothing_listens_and_none_is_made(void **state)
{
    struct session *session;
    struct looking looking;

    (void)state;
    world.config.session.preload = false;
    session = world_open_simple(&world, "ann", NULL);
    look(&looking, session);
    assert_int_equal(looking.list.err.code, ERR_NONE);
    assert_int_equal(looking.list.count, 0);
    port_list_stop(&looking.list);
    assert_null(session_sandbox(session));
}

static void a_paused_sandbox_cannot_tell(void **state)
{
    struct session *session = open_with_sandbox();
    struct looking looking;

    (void)state;
    session_pause(session, NULL, NULL);
    world_settle(&world);
    look(&looking, session);
    assert_int_equal(looking.list.err.code, ERR_CONFLICT);
    assert_string_equal(looking.list.err.name, "sandbox_not_running");
    port_list_stop(&looking.list);
}

static void an_init_that_is_too_old_is_told(void **state)
{
    struct session *session = open_with_sandbox();
    struct looking looking;

    (void)state;
    fake_programs_refuse_ports(ENOSYS);
    look(&looking, session);
    assert_string_equal(looking.list.err.name, "ports_unknown");
    port_list_stop(&looking.list);
    fake_programs_refuse_ports(-1);
    look(&looking, session);
    assert_string_equal(looking.list.err.name, "sandbox_too_old");
    port_list_stop(&looking.list);
}

static void an_init_that_hangs_is_not_waited_for_for_ever(void **state)
{
    struct session *session = open_with_sandbox();
    struct looking looking = { 0 };

    (void)state;
    fake_programs_hang(true);
    port_list_start(&looking.list, world.core, session, on_listed);
    world_advance(&world, 9000);
    assert_int_equal(looking.answers, 0);
    world_advance(&world, 2000);
    assert_int_equal(looking.answers, 1);
    assert_int_equal(looking.list.err.code, ERR_TIMEOUT);
    port_list_stop(&looking.list);
    fake_programs_hang(false);
}

/* --- streams --------------------------------------------------------------------------------- */

struct using
{
    struct port_stream stream;
    unsigned opens, losses;
    int fd;
};

static void on_open(struct port_stream *stream)
{
    struct using *using = container_of(stream, struct using, stream);

    using->opens++;
    using->fd = stream->fd;
}

static void on_lost(struct port_stream *stream)
{
    container_of(stream, struct using, stream)->losses++;
}

static void use(struct using *using, struct session *session, unsigned port, uint64_t generation)
{
    *using = (struct using){ .fd = -1 };
    port_stream_open(&using->stream, session, port, generation, on_open, on_lost);
    assert_int_equal(using->opens, 0);
    world_settle(&world);
    world_advance(&world, 1);
    world_settle(&world);
}

static void a_stream_carries_bytes(void **state)
{
    struct session *session = open_with_sandbox();
    struct using using;
    char bytes[8] = "";
    int inside;

    (void)state;
    use(&using, session, PORT, 0);
    assert_int_equal(using.opens, 1);
    assert_int_equal(using.stream.err.code, ERR_NONE);
    assert_int_equal(using.stream.generation, 1);
    inside = fake_programs_accept();
    assert_int_equal(send(using.fd, "hello", 5, MSG_DONTWAIT), 5);
    assert_int_equal(recv(inside, bytes, sizeof(bytes), MSG_DONTWAIT), 5);
    port_stream_close(&using.stream);
    port_stream_close(&using.stream); /* once more does no harm */
    fd_close(using.fd);
    fd_close(inside);
}

static void a_port_that_nothing_serves_is_closed(void **state)
{
    struct session *session = open_with_sandbox();
    struct using using;

    (void)state;
    use(&using, session, PORT + 1, 0);
    assert_int_equal(using.opens, 1);
    assert_int_equal(using.stream.err.code, ERR_BACKEND);
    assert_string_equal(using.stream.err.name, "port_closed");
    assert_true(using.stream.err.retryable);
    assert_int_equal(session_active_holds(session), 0);
    port_stream_close(&using.stream);
}

static void a_session_without_a_sandbox_gets_none(void **state)
{
    struct session *session;
    struct using using;

    (void)state;
    world.config.session.preload = false;
    session = world_open_simple(&world, "ann", NULL);
    use(&using, session, PORT, 0);
    assert_int_equal(using.opens, 1);
    assert_string_equal(using.stream.err.name, "port_closed");
    assert_null(session_sandbox(session));
    port_stream_close(&using.stream);
}

static void another_generation_is_refused(void **state)
{
    struct session *session = open_with_sandbox();
    struct using using;

    (void)state;
    use(&using, session, PORT, 2);
    assert_int_equal(using.opens, 1);
    assert_string_equal(using.stream.err.name, "generation_moved");
    port_stream_close(&using.stream);
}

/* While bytes flow the session is held; an open stream that is quiet is not. */
static void bytes_are_use_and_an_open_stream_is_not(void **state)
{
    struct session *session = open_with_sandbox();
    struct using using;

    (void)state;
    use(&using, session, PORT, 0);
    assert_int_equal(session_active_holds(session), 1);
    for (int i = 0; i < 10; i++) {
        world_advance(&world, PORT_QUIET_MS - 1000);
        port_stream_note_bytes(&using.stream);
        assert_int_equal(session_active_holds(session), 1);
    }
    world_advance(&world, PORT_QUIET_MS + 1);
    assert_int_equal(session_active_holds(session), 0);
    world_advance(&world, 60 * 1000);
    port_stream_note_bytes(&using.stream);
    world_settle(&world);
    assert_int_equal(session_active_holds(session), 1);
    port_stream_close(&using.stream);
    assert_int_equal(session_active_holds(session), 0);
    fd_close(using.fd);
}

static void a_quiet_stream_ends_with_its_idle_session(void **state)
{
    struct session *session = open_with_sandbox();
    char id[ID_SIZE];
    struct using using;

    (void)state;
    memcpy(id, session_id(session), sizeof(id));
    use(&using, session, PORT, 0);
    world_advance(&world, session_idle_timeout_ms(session) + 2 * PORT_QUIET_MS);
    assert_int_equal(using.losses, 1);
    assert_string_equal(using.stream.err.name, "sandbox_lost");
    port_stream_note_bytes(&using.stream); /* nothing happens any more */
    port_stream_close(&using.stream);
    assert_null(world_find(&world, id));
    fd_close(using.fd);
}

static void the_loss_of_the_sandbox_is_told_once(void **state)
{
    struct session *session = open_with_sandbox();
    struct using using;

    (void)state;
    use(&using, session, PORT, 0);
    session_teardown(session, END_TEARDOWN);
    world_settle(&world);
    assert_int_equal(using.losses, 1);
    assert_int_equal(using.opens, 1);
    port_stream_close(&using.stream);
    fd_close(using.fd);
}

static void a_stream_that_is_given_up_while_it_opens_leaves_nothing(void **state)
{
    struct session *session = open_with_sandbox();
    struct using using = { 0 };

    (void)state;
    fake_programs_hang(true);
    port_stream_open(&using.stream, session, PORT, 0, on_open, on_lost);
    port_stream_close(&using.stream);
    port_stream_open(&using.stream, session, PORT, 0, on_open, on_lost);
    world_settle(&world);
    assert_int_equal(using.stream.state, PORT_STREAM_CONNECTING);
    fd_close(using.stream.request.result.file.fd);
    port_stream_close(&using.stream);
    fake_programs_hang(false);
    world_settle(&world);
    assert_int_equal(using.opens, 0);
    assert_int_equal(session_active_holds(session), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ports_are_listed_and_looking_is_no_use),
        TEST(without_a_sandbox_nothing_listens_and_none_is_made),
        TEST(a_paused_sandbox_cannot_tell),
        TEST(an_init_that_is_too_old_is_told),
        TEST(an_init_that_hangs_is_not_waited_for_for_ever),
        TEST(a_stream_carries_bytes),
        TEST(a_port_that_nothing_serves_is_closed),
        TEST(a_session_without_a_sandbox_gets_none),
        TEST(another_generation_is_refused),
        TEST(bytes_are_use_and_an_open_stream_is_not),
        TEST(a_quiet_stream_ends_with_its_idle_session),
        TEST(the_loss_of_the_sandbox_is_told_once),
        TEST(a_stream_that_is_given_up_while_it_opens_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
