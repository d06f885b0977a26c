/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/relay_identity.h"

#include "base/alloc.h"
#include "base/scoped.h"
#include "base/str.h"
#include "wire/sha256.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIELDS = 12, MAC_DIGITS = 2 * SHA256_SIZE };

static const char version[] = "1";

/* --- the secret ------------------------------------------------------------------------------ */

static int check_file(int fd, const char *path, struct error *err)
{
    struct stat status;

    if (fstat(fd, &status) < 0)
        return error_sys(err, "read %s", path);
    if (!S_ISREG(status.st_mode))
        return error_set(err, ERR_INVALID, "%s is not a regular file", path);
    if (status.st_mode & (S_IRWXO | S_IWGRP)) {
        error_set(err, ERR_INVALID, "%s can be read by others, or changed by its group", path);
        return error_hint(err, "chmod 600 %.200s", path);
    }
    return 0;
}

int relay_secret_read(struct relay_secret *secret, const char *path, struct error *err)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    uint8_t bytes[RELAY_SECRET_MAXIMUM + 1];
    ssize_t length;

    if (fd < 0)
        return error_sys(err, "open the secret of the cluster, %s", path);
    if (check_file(fd, path, err) < 0)
        return error_wrap(err, "the secret of the cluster");
    length = read(fd, bytes, sizeof(bytes));
    if (length < 0)
        return error_sys(err, "read the secret of the cluster, %s", path);
    while (length > 0 && isspace(bytes[length - 1]))
        length--;
    if (length < RELAY_SECRET_MINIMUM || length > RELAY_SECRET_MAXIMUM) {
        error_set(err, ERR_INVALID, "the secret of the cluster, %s, must have %d to %d bytes", path,
                  RELAY_SECRET_MINIMUM, RELAY_SECRET_MAXIMUM);
        return error_hint(err, "openssl rand -hex 32 makes one; all nodes need the same");
    }
    memcpy(secret->bytes, bytes, (size_t)length);
    secret->length = (size_t)length;
    explicit_bzero(bytes, sizeof(bytes));
    return 0;
}

/* --- signing --------------------------------------------------------------------------------- */

static void sign(const struct relay_secret *secret, enum http_method method, const char *target,
                 const void *text, size_t length, uint8_t mac[SHA256_SIZE])
{
    const char *name = http_method_name(method);
    struct hmac hmac;

    hmac_init(&hmac, secret->bytes, secret->length);
    hmac_add(&hmac, text, length);
    hmac_add(&hmac, "\n", 1);
    hmac_add(&hmac, name, strlen(name));
    hmac_add(&hmac, " ", 1);
    hmac_add(&hmac, target, strlen(target));
    hmac_finish(&hmac, mac);
}

static int hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static int read_mac(const char *text, uint8_t mac[SHA256_SIZE])
{
    if (strlen(text) != MAC_DIGITS)
        return -1;
    for (size_t i = 0; i < SHA256_SIZE; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return -1;
        mac[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

/* --- writing --------------------------------------------------------------------------------- */

static void put_text(struct buffer *out, const char *text)
{
    buffer_append_byte(out, ';');
    (void)http_escape(out, text ? text : "");
}

static void put_number(struct buffer *out, uint64_t number)
{
    buffer_appendf(out, ";%" PRIu64, number);
}

int relay_identity_write(const struct relay_identity *identity, const struct relay_secret *secret,
                         enum http_method method, const char *target, struct buffer *out)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(RELAY_TEXT_MAXIMUM);
    uint8_t mac[SHA256_SIZE];

    buffer_append_text(&text, version);
    put_text(&text, identity->from);
    put_number(&text, identity->from_epoch);
    put_text(&text, identity->to);
    put_number(&text, identity->to_epoch);
    put_number(&text, identity->counter);
    put_text(&text, identity->owner);
    put_text(&text, identity->principal);
    put_text(&text, identity->on_behalf_of);
    put_text(&text, identity->peer);
    put_number(&text, identity->roles);
    put_number(&text, identity->flags);
    sign(secret, method, target, text.data, text.length, mac);
    buffer_append_byte(&text, ';');
    for (size_t i = 0; i < SHA256_SIZE; i++)
        buffer_appendf(&text, "%02x", mac[i]);
    return text.overflowed ? -1 : buffer_append(out, text.data, text.length);
}

/* --- reading --------------------------------------------------------------------------------- */

/* In place; -1 for an escape that is malformed or stands for NUL. */
static int unescape(char *text)
{
    char *out = text;

    for (; *text; text++) {
        int high = *text == '%' ? hex_digit((char)tolower((unsigned char)text[1])) : -1;
        int low = high >= 0 ? hex_digit((char)tolower((unsigned char)text[2])) : -1;

        if (*text != '%') {
            *out++ = *text;
            continue;
        }
        if (low < 0 || (high == 0 && low == 0))
            return -1;
        *out++ = (char)(high << 4 | low);
        text += 2;
    }
    *out = '\0';
    return 0;
}

/* Cuts the text at its semicolons; -1 unless there are exactly as many fields as there should be. */
static int split(char *text, char *fields[FIELDS])
{
    size_t count = 0;

    for (char *next; text; text = next) {
        next = strchr(text, ';');
        if (next)
            *next++ = '\0';
        if (count == FIELDS || unescape(text) < 0)
            return -1;
        fields[count++] = text;
    }
    return count == FIELDS ? 0 : -1;
}

static int read_u32(const char *text, unsigned *out)
{
    uint64_t value;

    if (str_to_u64(text, &value) < 0 || value > UINT32_MAX)
        return -1;
    *out = (unsigned)value;
    return 0;
}

static int take_fields(struct relay_identity *identity, char *const fields[FIELDS])
{
    if (strcmp(fields[0], version) != 0 || !*fields[1] || !*fields[3] ||
        str_to_u64(fields[2], &identity->from_epoch) < 0 ||
        str_to_u64(fields[4], &identity->to_epoch) < 0 ||
        str_to_u64(fields[5], &identity->counter) < 0 || identity->counter == 0 ||
        read_u32(fields[10], &identity->roles) < 0 || read_u32(fields[11], &identity->flags) < 0)
        return -1;
    identity->from = fields[1];
    identity->to = fields[3];
    identity->owner = fields[6];
    identity->principal = fields[7];
    identity->on_behalf_of = fields[8];
    identity->peer = fields[9];
    return 0;
}

int relay_identity_parse(struct relay_identity *identity, const char *text, size_t length)
{
    scoped(free) char *storage = NULL;
    struct relay_identity found = { 0 };
    char *fields[FIELDS];

    if (length > RELAY_TEXT_MAXIMUM || memchr(text, '\0', length))
        return -1;
    storage = xstrndup(text, length);
    if (split(storage, fields) < 0 || take_fields(&found, fields) < 0)
        return -1;
    found.storage = steal_ptr(&storage);
    *identity = found;
    return 0;
}

int relay_identity_read(struct relay_identity *identity, const struct relay_secret *secret,
                        enum http_method method, const char *target, const char *text,
                        struct error *err)
{
    const char *last = strrchr(text, ';');
    uint8_t given[SHA256_SIZE], expected[SHA256_SIZE];

    if (last && read_mac(last + 1, given) == 0) {
        sign(secret, method, target, text, (size_t)(last - text), expected);
        if (hmac_equal(given, expected) &&
            relay_identity_parse(identity, text, (size_t)(last - text)) == 0)
            return 0;
    }
    error_named(err, ERR_FORBIDDEN, "relay_refused",
                "the header " RELAY_HEADER " is not signed by a node of this cluster");
    return error_hint(err, "the header is for nodes alone; the file node.secret_file must be the "
                           "same on all of them");
}

void relay_identity_fini(struct relay_identity *identity)
{
    free(identity->storage);
    *identity = (struct relay_identity){ 0 };
}

/* --- counters that were used ------------------------------------------------------------------ */

static uint64_t bit_of(uint64_t counter)
{
    return UINT64_C(1) << (counter % 64);
}

static uint64_t *word_of(struct relay_window *window, uint64_t counter)
{
    return &window->used[counter / 64 % (RELAY_WINDOW / 64)];
}

/* The words between the highest counter and the new one stand for counters that were not used. */
static void move_on(struct relay_window *window, uint64_t counter)
{
    uint64_t from = window->highest / 64 + 1, to = counter / 64;

    if (to >= from + RELAY_WINDOW / 64)
        from = to - (RELAY_WINDOW / 64 - 1);
    for (uint64_t word = from; word <= to; word++)
        window->used[word % (RELAY_WINDOW / 64)] = 0;
    window->highest = counter;
}

enum relay_verdict relay_window_take(struct relay_window *window, uint64_t epoch, uint64_t counter)
{
    if (epoch < window->epoch)
        return RELAY_STALE;
    if (epoch > window->epoch)
        *window = (struct relay_window){ .epoch = epoch };
    if (counter > window->highest)
        move_on(window, counter);
    else if (window->highest - counter >= RELAY_WINDOW - 64)
        return RELAY_OLD;
    else if (*word_of(window, counter) & bit_of(counter))
        return RELAY_USED;
    *word_of(window, counter) |= bit_of(counter);
    return RELAY_NEW;
}
