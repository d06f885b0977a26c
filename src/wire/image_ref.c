/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/image_ref.h"

#include "base/macros.h"

#include <stdio.h>
#include <string.h>

/* A piece of the text. */
struct piece {
    const char *at;
    size_t length;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_word(char c)
{
    return is_digit(c) || is_lower(c) || (c >= 'A' && c <= 'Z');
}

static bool piece_is(struct piece piece, const char *text)
{
    return piece.length == strlen(text) && memcmp(piece.at, text, piece.length) == 0;
}

static int refuse(struct error *err, const char *text, const char *what)
{
    return error_set(err, ERR_INVALID, "\"%.*s\" is not a reference to an image: %s",
                     IMAGE_REF_NAME_MAXIMUM, text, what);
}

/* Refuses bytes that are not printable ASCII without repeating them in the message. */
static int check_bytes(const char *text, struct error *err)
{
    for (const char *at = text; *at; at++) {
        unsigned char byte = (unsigned char)*at;

        if (byte < ' ' || byte >= 0x7f)
            return error_set(err, ERR_INVALID,
                             "a reference to an image has a byte that is no printable ASCII "
                             "character, at offset %zu",
                             (size_t)(at - text));
    }
    if (!*text)
        return error_set(err, ERR_INVALID, "a reference to an image is empty");
    return strchr(text, ' ') ? refuse(err, text, "it has a space") : 0;
}

/* --- the host -------------------------------------------------------------------------------- */

static bool port_is_valid(struct piece port)
{
    unsigned number = 0;

    if (!port.length || port.length > 5)
        return false;
    for (size_t i = 0; i < port.length; i++) {
        if (!is_digit(port.at[i]))
            return false;
        number = number * 10 + (unsigned)(port.at[i] - '0');
    }
    return number > 0 && number <= 65535;
}

/* Labels of letters, digits and dashes, which do not begin or end with a dash. */
static bool host_is_valid(struct piece host)
{
    char before = '.';

    for (size_t i = 0; i < host.length; i++) {
        char c = host.at[i];
        bool is_edge = before == '.';

        if (c == '.' ? is_edge || before == '-' : c == '-' ? is_edge : !is_word(c))
            return false;
        before = c;
    }
    return host.length && before != '.' && before != '-';
}

static bool address_is_valid(struct piece address)
{
    if (address.length < 4 || address.at[0] != '[' || address.at[address.length - 1] != ']')
        return false;
    for (size_t i = 1; i + 1 < address.length; i++) {
        char c = address.at[i];

        if (c != ':' && c != '.' && !is_digit(c) && !(c >= 'a' && c <= 'f') &&
            !(c >= 'A' && c <= 'F'))
            return false;
    }
    return true;
}

static const char *host_problem(struct piece host)
{
    const char *bracket = host.at[0] == '[' ? memchr(host.at, ']', host.length) : NULL;
    const char *from = bracket ? bracket : host.at;
    const char *colon = memchr(from, ':', host.length - (size_t)(from - host.at));
    struct piece name = { host.at, colon ? (size_t)(colon - host.at) : host.length };

    if (colon) {
        struct piece port = { colon + 1, host.length - name.length - 1 };

        if (!port_is_valid(port))
            return "the port of its host must be a number from 1 to 65535";
    }
    if (!(bracket ? address_is_valid(name) : host_is_valid(name)))
        return "its host is malformed";
    return NULL;
}

static bool piece_is_host(struct piece first)
{
    return memchr(first.at, '.', first.length) || memchr(first.at, ':', first.length) ||
           piece_is(first, "localhost");
}

/* --- the path -------------------------------------------------------------------------------- */

/* Between letters and digits: '.', '_', "__" or any number of '-'. */
static bool separator_is_valid(struct piece separator)
{
    for (size_t i = 0; i < separator.length; i++) {
        if (separator.at[i] != separator.at[0])
            return false;
    }
    switch (separator.at[0]) {
    case '.':
        return separator.length == 1;
    case '_':
        return separator.length <= 2;
    default:
        return separator.at[0] == '-';
    }
}

static const char *component_problem(struct piece component)
{
    size_t i = 0;

    if (!component.length)
        return "a component of its path is empty";
    while (i < component.length) {
        size_t begin = i;

        while (i < component.length && (is_digit(component.at[i]) || is_lower(component.at[i])))
            i++;
        if (i == begin && is_word(component.at[i]))
            return "its path must be lower case";
        if (i == begin)
            return "a component of its path must begin with a letter or a digit";
        if (i == component.length)
            return NULL;
        if (is_word(component.at[i]))
            return "its path must be lower case";
        begin = i;
        while (i < component.length && !is_word(component.at[i]))
            i++;
        if (!separator_is_valid((struct piece){ component.at + begin, i - begin }))
            return "its path has characters other than a-z, 0-9 and single separators (. _ __ -)";
        if (i == component.length)
            return "a component of its path must end with a letter or a digit";
    }
    return NULL;
}

static const char *path_problem(struct piece path)
{
    size_t begin = 0;

    for (size_t i = 0; i <= path.length; i++) {
        const char *problem;

        if (i < path.length && path.at[i] != '/')
            continue;
        problem = component_problem((struct piece){ path.at + begin, i - begin });
        if (problem)
            return problem;
        begin = i + 1;
    }
    return NULL;
}

/* --- tag and digest -------------------------------------------------------------------------- */

static const char *tag_problem(struct piece tag)
{
    if (!tag.length || tag.length > IMAGE_REF_TAG_MAXIMUM)
        return "its tag must have 1 to 128 characters";
    for (size_t i = 0; i < tag.length; i++) {
        char c = tag.at[i];

        if (!is_word(c) && c != '_' && (i == 0 || (c != '.' && c != '-')))
            return "its tag must have letters, digits, and after the first also . _ -";
    }
    return NULL;
}

static const char *digest_problem(struct piece digest)
{
    static const char prefix[] = "sha256:";
    size_t skip = sizeof(prefix) - 1;

    if (digest.length != IMAGE_REF_DIGEST_LENGTH || memcmp(digest.at, prefix, skip) != 0)
        return "its digest must be sha256: and 64 digits";
    for (size_t i = skip; i < digest.length; i++) {
        if (!is_digit(digest.at[i]) && !(digest.at[i] >= 'a' && digest.at[i] <= 'f'))
            return "its digest must have the digits 0-9 and a-f";
    }
    return NULL;
}

/* --- the whole ------------------------------------------------------------------------------- */

struct parts {
    struct piece host; /* empty: none */
    struct piece path;
    struct piece tag;    /* `at` NULL: none */
    struct piece digest; /* the same */
};

static void cut(struct parts *parts, const char *text)
{
    const char *end = text + strlen(text);
    const char *at = strchr(text, '@');
    const char *slash;
    const char *colon;

    *parts = (struct parts){ 0 };
    if (at) {
        parts->digest = (struct piece){ at + 1, (size_t)(end - at - 1) };
        end = at;
    }
    slash = memrchr(text, '/', (size_t)(end - text));
    colon = memrchr(slash ? slash : text, ':', (size_t)(end - (slash ? slash : text)));
    if (colon) {
        parts->tag = (struct piece){ colon + 1, (size_t)(end - colon - 1) };
        end = colon;
    }
    slash = memchr(text, '/', (size_t)(end - text));
    if (slash && piece_is_host((struct piece){ text, (size_t)(slash - text) })) {
        parts->host = (struct piece){ text, (size_t)(slash - text) };
        text = slash + 1;
    }
    parts->path = (struct piece){ text, (size_t)(end - text) };
}

static const char *parts_problem(const struct parts *parts)
{
    const char *problem = parts->host.at ? host_problem(parts->host) : NULL;

    if (!problem)
        problem = path_problem(parts->path);
    if (!problem && parts->tag.at)
        problem = tag_problem(parts->tag);
    if (!problem && parts->digest.at)
        problem = digest_problem(parts->digest);
    return problem;
}

static void piece_copy(char *out, struct piece piece)
{
    memcpy(out, piece.at ? piece.at : "", piece.length);
    out[piece.length] = '\0';
}

/* -1: host and path are too long together. */
static int fill_repository(struct image_ref *ref, const struct parts *parts)
{
    static const char hub[] = "docker.io";
    struct piece host = parts->host;
    const char *library = "";
    int length;

    if (!host.at || piece_is(host, "index.docker.io"))
        host = (struct piece){ hub, sizeof(hub) - 1 };
    if (piece_is(host, hub) && !memchr(parts->path.at, '/', parts->path.length))
        library = "library/";
    if (host.length + parts->path.length > IMAGE_REF_NAME_MAXIMUM)
        return -1;
    length = snprintf(ref->repository, sizeof(ref->repository), "%.*s/%s%.*s", (int)host.length,
                      host.at, library, (int)parts->path.length, parts->path.at);
    ref->host_length = host.length;
    return length > IMAGE_REF_NAME_MAXIMUM ? -1 : 0;
}

int image_ref_parse(struct image_ref *ref, const char *text, struct error *err)
{
    struct image_ref result = { 0 };
    struct parts parts;
    const char *problem;

    if (check_bytes(text, err) < 0)
        return -1;
    cut(&parts, text);
    problem = parts_problem(&parts);
    if (problem)
        return refuse(err, text, problem);
    if (fill_repository(&result, &parts) < 0)
        return refuse(err, text, "its host and path have more than 255 characters");
    piece_copy(result.tag, parts.tag);
    piece_copy(result.digest, parts.digest);
    if (!parts.tag.at && !parts.digest.at)
        piece_copy(result.tag, (struct piece){ "latest", 6 });
    *ref = result;
    return 0;
}

void image_ref_format(const struct image_ref *ref, char out_text[IMAGE_REF_TEXT_SIZE])
{
    snprintf(out_text, IMAGE_REF_TEXT_SIZE, "%s%s%s%s%s", ref->repository, *ref->tag ? ":" : "",
             ref->tag, *ref->digest ? "@" : "", ref->digest);
}
