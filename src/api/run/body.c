/* SPDX-License-Identifier: Apache-2.0 */
#include "api/run/executions.h"
#include "api/sessions/sessions.h"
#include "base/alloc.h"
#include "base/str.h"

#include <string.h>

/* The body of POST …/executions. */
struct fields {
    json_t *argv, *env, *secrets;
    const char *command, *code, *language, *cwd, *user, *key, *output_full;
    int64_t timeout_ms, generation;
    bool background, cancel_on_disconnect;
};

#define FIELD(name) offsetof(struct fields, name)

const struct json_field execution_fields[EXECUTION_FIELDS] = {
    { "argv", JSON_KIND_TEXT_LIST, FIELD(argv) },
    { "command", JSON_KIND_TEXT, FIELD(command) },
    { "code", JSON_KIND_TEXT, FIELD(code), .max_length = PROTOCOL_MAX_SCRIPT_BYTES },
    { "language", JSON_KIND_TEXT, FIELD(language), .max_length = 64 },
    { "env", JSON_KIND_TEXT_MAP, FIELD(env) },
    { "secrets", JSON_KIND_TEXT_MAP, FIELD(secrets) },
    { "cwd", JSON_KIND_TEXT, FIELD(cwd), .max_length = 4095 },
    { "user", JSON_KIND_TEXT, FIELD(user), .max_length = 63 },
    { "timeout_seconds", JSON_KIND_SECONDS, FIELD(timeout_ms), .maximum = SECONDS_MAXIMUM },
    { "background", JSON_KIND_BOOL, FIELD(background) },
    { "generation", JSON_KIND_INT, FIELD(generation), .minimum = 0, .maximum = 9e15 },
    { "key", JSON_KIND_TEXT, FIELD(key), .max_length = 256 },
    { "output_full", JSON_KIND_TEXT, FIELD(output_full), .max_length = 16 },
    { "cancel_on_disconnect", JSON_KIND_BOOL, FIELD(cancel_on_disconnect) },
};

const struct route_extra execution_extras[] = {
    { "stdin", "{\"type\":[\"string\",\"boolean\"],\"description\":\"the complete input, or true: "
               "the input is sent to the stdin route\"}" },
    { "tty", "{\"type\":[\"boolean\",\"object\"],\"properties\":{\"cols\":{\"type\":\"integer\"},"
             "\"rows\":{\"type\":\"integer\"}},\"description\":\"a terminal instead of pipes\"}" },
    { 0 },
};

struct size {
    int64_t columns, rows;
};

static const struct json_field size_fields[] = {
    { "cols", JSON_KIND_INT, offsetof(struct size, columns), .minimum = 1, .maximum = 10000 },
    { "rows", JSON_KIND_INT, offsetof(struct size, rows), .minimum = 1, .maximum = 10000 },
};

static int read_tty(struct request *request, struct execution_request *wanted, struct error *err)
{
    scoped(json_decref) json_t *tty = request_take_field(request, "tty");
    struct size size = { .columns = 80, .rows = 24 };

    if (!tty || json_is_false(tty))
        return 0;
    if (!json_is_true(tty) && !json_is_object(tty))
        return error_named(err, ERR_INVALID, "invalid_field",
                           "tty must be true or an object with cols and rows");
    if (json_is_object(tty) &&
        json_decode(tty, size_fields, ARRAY_LENGTH(size_fields), &size, err) < 0)
        return error_wrap(err, "tty");
    wanted->terminal = true;
    wanted->columns = (unsigned)size.columns;
    wanted->rows = (unsigned)size.rows;
    return 0;
}

static int read_stdin(struct request *request, struct execution_body *body, struct error *err)
{
    json_t *given = body->any_stdin = request_take_field(request, "stdin");

    if (!given || json_is_false(given))
        return 0;
    if (json_is_true(given)) {
        body->request.wants_stdin = true;
        return 0;
    }
    if (!json_is_string(given))
        return error_named(err, ERR_INVALID, "invalid_field", "stdin must be a string or true");
    body->request.stdin_data = json_string_value(given);
    body->request.stdin_length = json_string_length(given);
    return 0;
}

static const char **list_texts(const json_t *list)
{
    const char **texts = xcalloc(json_array_size(list) + 1, sizeof(*texts));
    json_t *item;
    size_t i;

    json_array_foreach((json_t *)list, i, item) texts[i] = json_string_value(item);
    return texts;
}

/* A caller who gives a key comes back for the execution, and a caller who starts it in the
 * background does not wait for it. All other callers cancel their execution by leaving. */
static bool cancels_by_leaving(const struct request *request, const struct fields *fields)
{
    return json_is_boolean(json_object_get(request->body, "cancel_on_disconnect"))
               ? fields->cancel_on_disconnect
               : !fields->background && str_is_empty(fields->key);
}

/* The header and the field mean the same. */
int execution_key(const struct request *request, const char **out_key, struct error *err)
{
    const char *field = json_string_value(json_object_get(request->body, "key"));

    if (request_idempotency_key(request, out_key, err) < 0)
        return -1;
    if (str_is_empty(field))
        return 0;
    if (*out_key && !str_equal(*out_key, field))
        return error_named(err, ERR_INVALID, "invalid_field",
                           "key and the header Idempotency-Key must be the same");
    *out_key = field;
    return 0;
}

int execution_body_read(struct request *request, struct execution_body *body, struct error *err)
{
    struct fields fields = { .timeout_ms = -1 };
    struct execution_request *wanted = &body->request;

    *body = (struct execution_body){ 0 };
    if (read_tty(request, wanted, err) < 0 || read_stdin(request, body, err) < 0 ||
        request_decode(request, &fields, err) < 0 || execution_key(request, &fields.key, err) < 0) {
        execution_body_fini(body);
        return -1;
    }
    if (fields.argv)
        wanted->argv = (const char *const *)(body->argv = list_texts(fields.argv));
    wanted->env_json = body->env_json = json_to_text(fields.env);
    wanted->secrets_json = body->secrets_json = json_to_text(fields.secrets);
    wanted->command = fields.command;
    wanted->code = fields.code;
    wanted->code_length = fields.code ? strlen(fields.code) : 0;
    wanted->language = fields.language;
    wanted->cwd = fields.cwd;
    wanted->user = fields.user;
    wanted->output_full = fields.output_full;
    wanted->key = str_is_empty(fields.key) ? NULL : fields.key;
    wanted->timeout_ms = fields.timeout_ms;
    wanted->background = fields.background;
    wanted->needs_client = fields.background && fields.cancel_on_disconnect;
    wanted->generation = (uint64_t)fields.generation;
    body->cancel_on_disconnect = cancels_by_leaving(request, &fields);
    return 0;
}

void execution_body_fini(struct execution_body *body)
{
    free(body->argv);
    free(body->env_json);
    free(body->secrets_json);
    json_decref(body->any_stdin);
    *body = (struct execution_body){ 0 };
}
