/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/glob.h"

#include <string.h>

/* --- one component --------------------------------------------------------------------------- */

/* The end of a bracket expression that begins at `at`; NULL when it is not closed. */
static const char *bracket_end(const char *at, const char *end)
{
    at++;
    if (at < end && (*at == '!' || *at == '^'))
        at++;
    if (at < end && *at == ']')
        at++;
    for (; at < end; at++) {
        if (*at == '\\' && at + 1 < end)
            at++;
        else if (*at == ']')
            return at + 1;
    }
    return NULL;
}

static unsigned char take_plain(const char **at, const char *end)
{
    if (**at == '\\' && *at + 1 < end)
        (*at)++;
    return (unsigned char)*(*at)++;
}

static bool bracket_has(const char *at, const char *end, unsigned char byte)
{
    bool is_negated = false;
    bool is_found = false;

    at++;
    end--;
    if (at < end && (*at == '!' || *at == '^')) {
        is_negated = true;
        at++;
    }
    while (at < end) {
        unsigned char first = take_plain(&at, end);
        unsigned char last = first;

        if (at + 1 < end && *at == '-') {
            at++;
            last = take_plain(&at, end);
        }
        is_found |= byte >= first && byte <= last;
    }
    return is_found != is_negated;
}

/* One character is all bytes of its UTF-8 form. */
static const char *next_character(const char *text)
{
    text++;
    while (((unsigned char)*text & 0xc0) == 0x80)
        text++;
    return text;
}

/* Takes one element of the pattern (no star) and the character that it matches from the text. */
static bool match_element(const char **pattern, const char *end, const char **text)
{
    const char *at = *pattern;

    if (!**text)
        return false;
    if (*at == '?') {
        *pattern = at + 1;
        *text = next_character(*text);
        return true;
    }
    if (*at == '[') {
        const char *close = bracket_end(at, end);

        if (!close || !bracket_has(at, close, (unsigned char)**text))
            return false;
        *pattern = close;
        *text = next_character(*text);
        return true;
    }
    if (take_plain(&at, end) != (unsigned char)**text)
        return false;
    *pattern = at;
    (*text)++;
    return true;
}

/* Only the last star has to be retried: it can match whatever an earlier star could match in
 * addition. */
static bool match_component(const char *pattern, const char *end, const char *text)
{
    const char *star = NULL;
    const char *retry = NULL;

    for (;;) {
        if (pattern < end && *pattern == '*') {
            star = ++pattern;
            retry = text;
            continue;
        }
        if (pattern == end ? !*text : match_element(&pattern, end, &text)) {
            if (pattern == end && !*text)
                return true;
            continue;
        }
        if (!star || !*retry)
            return false;
        pattern = star;
        text = ++retry;
    }
}

static bool part_matches(const struct glob *glob, unsigned part, const char *name)
{
    const char *pattern = glob->parts[part];

    if (name[0] == '.' && !glob->hidden && pattern[0] != '.' &&
        !(pattern[0] == '\\' && pattern[1] == '.'))
        return false;
    return match_component(pattern, pattern + glob->lengths[part], name);
}

/* --- the pattern ----------------------------------------------------------------------------- */

static bool is_double_star(const struct glob *glob, unsigned part)
{
    return glob->lengths[part] == 2 && !memcmp(glob->parts[part], "**", 2);
}

static bool part_is_sound(const char *part, size_t length)
{
    if (!length || length > UINT16_MAX || (length == 1 && part[0] == '.') ||
        (length == 2 && !memcmp(part, "..", 2)))
        return false;
    for (const char *at = part, *end = part + length; at < end; at++) {
        if (*at == '\\') {
            at++;
        } else if (*at == '[') {
            at = bracket_end(at, end);
            if (!at)
                return false;
            at--;
        }
    }
    return true;
}

int glob_parse(struct glob *glob, const char *pattern, bool hidden)
{
    *glob = (struct glob){ .hidden = hidden };
    if (!*pattern || *pattern == '/')
        return -1;
    while (*pattern) {
        size_t length = strcspn(pattern, "/");

        if (glob->count == GLOB_PARTS || !part_is_sound(pattern, length))
            return -1;
        glob->parts[glob->count] = pattern;
        glob->lengths[glob->count++] = (uint16_t)length;
        pattern += length;
        if (*pattern == '/' && !*++pattern)
            return -1;
    }
    return 0;
}

/* A double star may also match nothing, except at the end: "a/" "**" matches the entries below
 * a. */
static glob_state close_state(const struct glob *glob, glob_state state)
{
    for (unsigned i = 0; i + 1 < glob->count; i++)
        if (state & 1ull << i && is_double_star(glob, i))
            state |= 1ull << (i + 1);
    return state;
}

glob_state glob_start(const struct glob *glob)
{
    return close_state(glob, 1);
}

glob_state glob_step(const struct glob *glob, glob_state state, const char *name)
{
    glob_state next = 0;

    for (unsigned i = 0; i < glob->count; i++) {
        if (!(state & 1ull << i))
            continue;
        if (!is_double_star(glob, i)) {
            if (part_matches(glob, i, name))
                next |= 1ull << (i + 1);
        } else if (glob->hidden || name[0] != '.') {
            next |= 1ull << i;
            if (i + 1 == glob->count)
                next |= 1ull << (i + 1);
        }
    }
    return close_state(glob, next);
}

bool glob_is_match(const struct glob *glob, glob_state state)
{
    return state >> glob->count & 1;
}

bool glob_goes_on(const struct glob *glob, glob_state state)
{
    return (state & ((1ull << glob->count) - 1)) != 0;
}

bool glob_match_path(const struct glob *glob, const char *path)
{
    glob_state state = glob_start(glob);
    char name[256];

    if (glob->count == 1 && !is_double_star(glob, 0)) {
        const char *slash = strrchr(path, '/');

        return part_matches(glob, 0, slash ? slash + 1 : path);
    }
    while (state) {
        size_t length = strcspn(path, "/");

        if (length >= sizeof name)
            return false;
        memcpy(name, path, length);
        name[length] = 0;
        state = glob_step(glob, state, name);
        path += length;
        if (!*path++)
            return glob_is_match(glob, state);
    }
    return false;
}
