/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/variables.h"

#include "base/alloc.h"
#include "base/str.h"
#include "wire/json.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SECRET_MAXIMUM = 128 * 1024 };

static int pair_write(const char *pair, struct json_writer *json, struct error *err)
{
    size_t length = strcspn(pair, "=");
    scoped(free) char *name = xstrndup(pair, length);
    const char *value = pair[length] ? pair + length + 1 : getenv(name);

    if (length == 0)
        return error_set(err, ERR_INVALID, "--env needs NAME or NAME=VALUE, not \"%s\"", pair);
    if (!value)
        return error_set(err, ERR_INVALID, "--env %s: the variable is not set", name);
    json_put_text(json, name, value);
    return 0;
}

/* As in a shell, the last one of a name counts. */
static bool is_set_again(const struct text_list *pairs, size_t place)
{
    size_t length = strcspn(pairs->items[place], "=");

    for (size_t i = place + 1; i < pairs->count; i++)
        if (strcspn(pairs->items[i], "=") == length &&
            memcmp(pairs->items[i], pairs->items[place], length) == 0)
            return true;
    return false;
}

static int pairs_write(const struct text_list *pairs, struct json_writer *json, struct error *err)
{
    for (size_t i = 0; i < pairs->count; i++)
        if (!is_set_again(pairs, i) && pair_write(pairs->items[i], json, err) < 0)
            return -1;
    return 0;
}

int env_write(const struct text_list *pairs, struct json_writer *json, const char *key,
              struct error *err)
{
    if (pairs->count == 0)
        return 0;
    json_begin_object(json, key);
    if (pairs_write(pairs, json, err) < 0)
        return -1;
    json_end_object(json);
    return 0;
}

/* --- secrets --------------------------------------------------------------------------------- */

static int read_secret(const char *path, struct buffer *text, struct error *err)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *room = buffer_reserve(text, SECRET_MAXIMUM + 1);
    ssize_t count = fd < 0 ? -1 : 1;

    while (count > 0 && text->length <= SECRET_MAXIMUM) {
        count = read(fd, room + text->length, SECRET_MAXIMUM + 1 - text->length);
        if (count > 0)
            buffer_advance(text, (size_t)count);
    }
    if (count < 0)
        return error_sys(err, "--secret-file: read %s", path);
    if (text->length > SECRET_MAXIMUM)
        return error_set(err, ERR_TOO_LARGE, "--secret-file: %s is larger than %d bytes", path,
                         SECRET_MAXIMUM);
    if (text->length && text->data[text->length - 1] == '\n')
        text->length--;
    if (memchr(text->data, 0, text->length) || !str_is_utf8((const char *)text->data, text->length))
        return error_set(err, ERR_INVALID, "--secret-file: %s is not text", path);
    return 0;
}

static int file_write(const char *pair, struct json_writer *json, struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(2 * SECRET_MAXIMUM);
    size_t length = strcspn(pair, "=");
    scoped(free) char *name = xstrndup(pair, length);

    if (length == 0)
        return error_set(err, ERR_INVALID, "--secret-file needs NAME=PATH");
    if (read_secret(pair + length + 1, &text, err) < 0)
        return -1;
    json_put_text(json, name, buffer_text(&text));
    return 0;
}

static int secrets_write(const struct variable_args *args, struct json_writer *json,
                         struct error *err)
{
    if (args->secrets.count + args->secret_files.count == 0)
        return 0;
    json_begin_object(json, "secrets");
    if (pairs_write(&args->secrets, json, err) < 0)
        return -1;
    for (size_t i = 0; i < args->secret_files.count; i++)
        if (file_write(args->secret_files.items[i], json, err) < 0)
            return -1;
    json_end_object(json);
    return 0;
}

int variables_write(const struct variable_args *args, struct json_writer *json, struct error *err)
{
    if (env_write(&args->env, json, "env", err) < 0)
        return -1;
    return secrets_write(args, json, err);
}
