/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"
#include "peers.h"

#include "base/alloc.h"
#include "base/str.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MAXIMUM = 16 << 20 };

static const struct {
    const char *name;
    const struct subject_ops *ops;
} known_subjects[] = {
    { "plain", &plain_ops },
    { "sandglass", &sandglass_ops },
    { "sandglass-cold", &sandglass_ops }, /* one without a pool */
    { "bare", &bare_ops },
    { "bwrap", &bwrap_ops },
    { "crun", &oci_ops },
    { "runc", &oci_ops },
    { "podman", &engine_ops },
    { "docker", &engine_ops },
    { "nginx", NULL },
};

static const struct {
    const char *name;
    void (*run)(struct engine *engine);
} sections[] = {
    { "latency", engine_latency }, { "alone", engine_alone },   { "rate", engine_rate },
    { "burst", engine_burst },     { "memory", engine_memory }, { "populate", engine_populate },
    { "growth", engine_growth },   { "output", engine_output }, { "requests", engine_requests },
    { "python", engine_python },   { "mcp", engine_mcp },
};

const struct subject *engine_subject(const struct engine *engine, const char *name)
{
    for (size_t i = 0; i < engine->count; i++)
        if (str_equal(engine->subjects[i].name, name))
            return &engine->subjects[i];
    return NULL;
}

/* --- rows ------------------------------------------------------------------------------------ */

static void begin_row(struct engine *engine, const char *row, const char *subject)
{
    json_begin_object(&engine->json, NULL);
    json_put_text(&engine->json, "row", row);
    json_put_text(&engine->json, "subject", subject);
}

void engine_put_samples(struct engine *engine, const char *row, const char *subject,
                        const char *unit, struct samples *samples)
{
    begin_row(engine, row, subject);
    json_put_text(&engine->json, "unit", unit);
    samples_write_json(samples, &engine->json);
    json_end_object(&engine->json);
}

void engine_put(struct engine *engine, const char *row, const char *subject, const char *unit,
                double value)
{
    scoped(samples_fini) struct samples samples = { 0 };

    samples_add(&samples, value);
    engine_put_samples(engine, row, subject, unit, &samples);
}

void engine_put_error(struct engine *engine, const char *row, const char *subject,
                      const struct error *err)
{
    begin_row(engine, row, subject);
    json_put_text(&engine->json, "error", err->message);
    json_end_object(&engine->json);
}

/* --- arguments ------------------------------------------------------------------------------- */

static _Noreturn void refuse(const char *what, const char *word)
{
    fprintf(stderr, "bench_engine: %s: %s\n", what, word);
    exit(2);
}

static void read_widths(struct engine *engine, char *text)
{
    size_t used = 0;

    for (char *word = strtok(text, ","); word && used < ENGINE_WIDTHS - 1; word = strtok(NULL, ","))
        engine->widths[used++] = (unsigned)atoi(word);
}

static bool read_option(struct engine *engine, const char *name, char *value)
{
    if (str_equal(name, "seconds"))
        engine->seconds = atof(value);
    else if (str_equal(name, "at_most"))
        engine->at_most = (size_t)atol(value);
    else if (str_equal(name, "slices"))
        engine->slices = (unsigned)atoi(value);
    else if (str_equal(name, "number"))
        engine->number = (size_t)atol(value);
    else if (str_equal(name, "tools"))
        engine->tools = value;
    else if (str_equal(name, "folder"))
        engine->folder = value;
    else if (str_equal(name, "program"))
        engine->program = value;
    else if (str_equal(name, "widths"))
        read_widths(engine, value);
    else
        return false;
    return true;
}

/* Where they cannot be had the others are measured without them. */
static bool can_be_bare(const struct engine *engine, const char *place)
{
    struct error err = { 0 };

    if (bare_prepare(engine->tools, place ? (unsigned)atoi(place) : 1, &err) == 0)
        return true;
    fprintf(stderr, "bench_engine: bare: %s\n", err.message);
    return false;
}

static void add_subject(struct engine *engine, const char *name, const char *place)
{
    if (str_equal(name, "bare") && !can_be_bare(engine, place))
        return;
    for (size_t i = 0; i < ARRAY_LENGTH(known_subjects); i++) {
        if (str_equal(known_subjects[i].name, name) && engine->count < ENGINE_SUBJECTS) {
            engine->subjects[engine->count++] = (struct subject){
                .name = name, .place = place, .tools = engine->tools, .ops = known_subjects[i].ops
            };
            return;
        }
    }
    refuse("nobody knows this word", name);
}

static void read_word(struct engine *engine, char *word)
{
    char *value = strchr(word, '=');

    if (value)
        *value++ = '\0';
    if (!value || !read_option(engine, word, value))
        add_subject(engine, word, value);
}

/* What is started may write to stdout; our answer goes where nobody else writes. */
static int take_stdout(void)
{
    int answer = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    scoped(fd_close) int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    (void)dup2(null, STDOUT_FILENO);
    return answer;
}

int main(int argc, char **argv)
{
    struct buffer text = BUFFER_INIT(ANSWER_MAXIMUM);
    struct engine engine = {
        .seconds = 1, .at_most = 100000, .slices = 3, .json = JSON_WRITER(&text)
    };
    int answer = take_stdout();

    if (argc < 2)
        refuse("usage", "bench_engine SECTION [OPTION=VALUE]... SUBJECT[=PLACE]...");
    signal(SIGPIPE, SIG_IGN);
    for (int i = 2; i < argc; i++)
        read_word(&engine, argv[i]);
    json_begin_object(&engine.json, NULL);
    json_begin_array(&engine.json, "rows");
    for (size_t i = 0; i < ARRAY_LENGTH(sections); i++) {
        if (!str_equal(sections[i].name, argv[1]))
            continue;
        sections[i].run(&engine);
        json_end_array(&engine.json);
        json_end_object(&engine.json);
        dprintf(answer, "%s\n", buffer_text(&text));
        buffer_fini(&text);
        return 0;
    }
    refuse("there is no such section", argv[1]);
}
