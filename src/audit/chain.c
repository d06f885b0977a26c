/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/chain.h"

#include "base/str.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char hash_member[] = ",\"hash\":\"";

enum { HEX = SHA256_TEXT_SIZE - 1, HASH_MEMBER = sizeof(hash_member) - 1, TAIL = 2 };

/* Notes whether the line closes the log, and the number of its event. "event" comes behind all
 * other members, so that no text inside of them can be taken for it. */
static void chain_note(struct chain *chain, const char *members, size_t length)
{
    static const char member[] = ",\"event\":";
    const size_t size = sizeof(member) - 1;

    chain->is_closed = str_starts_with(members, CHAIN_STOPPED);
    for (size_t at = length; at-- > 0;) {
        if (members[at] != ',' || strncmp(members + at, member, size) != 0)
            continue;
        chain->event = strtoull(members + at + size, NULL, 10);
        return;
    }
}

void chain_append(struct chain *chain, const char *members, struct buffer *out)
{
    size_t start = out->length;
    uint8_t digest[SHA256_BYTES];

    buffer_appendf(out, "{\"seq\":%llu,\"prev\":\"%s\",", (unsigned long long)chain->sequence + 1,
                   chain->hash);
    buffer_append_text(out, members);
    sha256_of("", 0, out->data + start, out->length - start, digest);
    chain->sequence++;
    chain_note(chain, members, strlen(members));
    hex_encode(digest, sizeof(digest), chain->hash);
    buffer_append_text(out, hash_member);
    buffer_append_text(out, chain->hash);
    buffer_append_text(out, "\"}\n");
}

static const char previous_member[] = ",\"prev\":\"";

struct line {
    uint64_t sequence;
    const char *previous, *hash; /* HEX bytes each */
    size_t covered;              /* bytes that the hash is of */
};

static bool is_hash(const char *text)
{
    return strspn(text, "0123456789abcdef") >= HEX;
}

/* The line ends with a NUL. */
static int line_read(struct line *line, const char *text, size_t length)
{
    char *end;

    if (!str_starts_with(text, "{\"seq\":") || length < HASH_MEMBER + HEX + TAIL)
        return -1;
    line->sequence = strtoull(text + 7, &end, 10);
    if (end == text + 7 || !str_starts_with(end, previous_member))
        return -1;
    line->previous = end + sizeof(previous_member) - 1;
    if (!is_hash(line->previous) || line->previous[HEX] != '"')
        return -1;
    line->covered = length - HASH_MEMBER - HEX - TAIL;
    if (text + line->covered < line->previous + HEX + 2)
        return -1; /* no member is between the two hashes */
    line->hash = text + line->covered + HASH_MEMBER;
    if (memcmp(text + line->covered, hash_member, HASH_MEMBER) != 0 || !is_hash(line->hash) ||
        strcmp(line->hash + HEX, "\"}") != 0)
        return -1;
    return 0;
}

const char *chain_line_members(const char *line)
{
    return strstr(line, previous_member) + sizeof(previous_member) - 1 + HEX + 2;
}

static bool line_follows(const struct line *line, const struct chain *chain, bool first)
{
    const struct chain start = CHAIN_START;

    if (first && line->sequence > 1)
        return str_starts_with(line->previous + HEX, "\"," CHAIN_CONTINUED);
    if (first)
        return line->sequence == 1 && memcmp(line->previous, start.hash, HEX) == 0;
    return line->sequence == chain->sequence + 1 && memcmp(line->previous, chain->hash, HEX) == 0;
}

enum chain_check chain_check_line(struct chain *chain, const char *text, size_t length, bool first)
{
    uint8_t digest[SHA256_BYTES];
    char hash[SHA256_TEXT_SIZE];
    struct line line;
    bool follows;

    if (strlen(text) != length || line_read(&line, text, length) < 0)
        return CHAIN_MALFORMED;
    follows = line_follows(&line, chain, first);
    chain->sequence = line.sequence;
    chain_note(chain, chain_line_members(text),
               line.covered - (size_t)(chain_line_members(text) - text));
    memcpy(chain->hash, line.hash, HEX);
    chain->hash[HEX] = '\0';
    sha256_of("", 0, text, line.covered, digest);
    hex_encode(digest, sizeof(digest), hash);
    if (memcmp(hash, line.hash, HEX) != 0)
        return CHAIN_ALTERED;
    return follows ? CHAIN_GOOD : CHAIN_BROKEN;
}

void chain_write_head(const struct chain *chain, struct buffer *out)
{
    buffer_appendf(out, "%020llu %s %020llu %s\n", (unsigned long long)chain->sequence, chain->hash,
                   (unsigned long long)chain->event, chain->is_closed ? "closed" : "open  ");
}

int chain_read_head(struct chain *chain, const char *text)
{
    char *end;
    uint64_t sequence = strtoull(text, &end, 10);

    if (end == text || *end != ' ' || !is_hash(end + 1) || strspn(end + 1 + HEX, " \n") == 0)
        return -1;
    *chain = (struct chain){ .sequence = sequence, .event = CHAIN_NO_EVENT };
    memcpy(chain->hash, end + 1, HEX);
    text = end + 1 + HEX;
    if (*text == '\n')
        return 0;
    chain->event = strtoull(text, &end, 10);
    chain->is_closed = str_starts_with(end, " closed");
    return end == text ? -1 : 0;
}
