/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/tar.h"

#include <string.h>

enum { NAME_SIZE = 100, PREFIX_SIZE = 155, SIZE_OCTAL_LIMIT_BITS = 33, NUMBER_SIZE = 24 };

/* The layout of a ustar header. */
struct header {
    char name[NAME_SIZE];
    char mode[8];
    char uid[8];
    char gid[8];
    char size[12];
    char modified[12];
    char checksum[8];
    char type;
    char link[NAME_SIZE];
    char magic[8];
    char owner[32];
    char group[32];
    char major[8];
    char minor[8];
    char prefix[PREFIX_SIZE];
    char rest[12];
};

_Static_assert(sizeof(struct header) == TAR_BLOCK, "a header is a block");

static void put_octal(char *field, size_t size, uint64_t value)
{
    for (size_t i = size - 1; i-- > 0; value >>= 3)
        field[i] = (char)('0' + (value & 7));
    field[size - 1] = 0;
}

static void put_checksum(struct header *header)
{
    const unsigned char *bytes = (const unsigned char *)header;
    unsigned sum = 0;

    memset(header->checksum, ' ', sizeof header->checksum);
    for (size_t i = 0; i < sizeof *header; i++)
        sum += bytes[i];
    put_octal(header->checksum, 7, sum);
}

static void fill_header(struct header *header, char type, uint32_t mode, uint64_t size,
                        int64_t modified_s)
{
    memset(header, 0, sizeof *header);
    header->type = type;
    put_octal(header->mode, sizeof header->mode, mode & 07777);
    put_octal(header->uid, sizeof header->uid, 0);
    put_octal(header->gid, sizeof header->gid, 0);
    put_octal(header->size, sizeof header->size, size);
    put_octal(header->modified, sizeof header->modified,
              modified_s < 0 || modified_s >> SIZE_OCTAL_LIMIT_BITS ? 0 : (uint64_t)modified_s);
    memcpy(header->magic, "ustar\00000", sizeof header->magic);
}

/* --- pax records ------------------------------------------------------------------------------ */

static size_t count_digits(size_t value)
{
    size_t count = 1;

    while (value /= 10)
        count++;
    return count;
}

/* The length of "LENGTH key=value\n" is part of itself. */
static size_t record_length(const char *key, size_t value_length)
{
    size_t rest = strlen(key) + value_length + 3;
    size_t length = rest + count_digits(rest);

    return rest + count_digits(length);
}

static char *put_number(char *out, uint64_t value)
{
    char digits[NUMBER_SIZE];
    size_t count = 0;

    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    while (count)
        *out++ = digits[--count];
    return out;
}

static char *put_record(char *out, const char *key, const char *value, size_t value_length)
{
    size_t key_length = strlen(key);

    out = put_number(out, record_length(key, value_length));
    *out++ = ' ';
    memcpy(out, key, key_length);
    out += key_length;
    *out++ = '=';
    memcpy(out, value, value_length);
    out += value_length;
    *out++ = '\n';
    return out;
}

static size_t put_extra_header(char *out, char type, size_t data_length)
{
    struct header header;
    size_t padding = tar_padding(data_length);

    fill_header(&header, type, 0644, data_length, 0);
    strcpy(header.name, "PaxHeaders/sandglass");
    put_checksum(&header);
    memcpy(out, &header, sizeof header);
    memset(out + sizeof header + data_length, 0, padding);
    return sizeof header + data_length + padding;
}

size_t tar_write_comment(char *out, size_t capacity, const char *text)
{
    size_t length = strlen(text);

    if (3 * TAR_BLOCK + record_length("comment", length) > capacity)
        return 0;
    put_record(out + TAR_BLOCK, "comment", text, length);
    return put_extra_header(out, 'g', record_length("comment", length));
}

/* --- members ---------------------------------------------------------------------------------- */

static size_t put_pax(char *out, const char *path, size_t path_length,
                      const struct tar_member *member)
{
    char *at = out + TAR_BLOCK;
    size_t link_length = strlen(member->link);
    char number[NUMBER_SIZE];

    if (path_length > NAME_SIZE)
        at = put_record(at, "path", path, path_length);
    if (link_length > NAME_SIZE)
        at = put_record(at, "linkpath", member->link, link_length);
    if (member->size >> SIZE_OCTAL_LIMIT_BITS)
        at = put_record(at, "size", number, (size_t)(put_number(number, member->size) - number));
    if (at == out + TAR_BLOCK)
        return 0;
    return put_extra_header(out, 'x', (size_t)(at - out) - TAR_BLOCK);
}

static void copy_cut(char *field, const char *text, size_t length)
{
    memcpy(field, text, length < NAME_SIZE ? length : NAME_SIZE);
}

size_t tar_write_member(char *out, size_t capacity, const struct tar_member *member)
{
    size_t path_length = strlen(member->path);
    struct header header;
    size_t used;
    char *path;

    if (5 * TAR_BLOCK + 2 * path_length + strlen(member->link) + 64 > capacity)
        return 0;
    /* The path is needed twice, and with a slash: it is put together at the very end of the room.
     */
    path = out + capacity - path_length - 1;
    memmove(path, member->path, path_length);
    if (member->type == TAR_DIRECTORY)
        path[path_length++] = '/';

    used = put_pax(out, path, path_length, member);
    fill_header(&header, (char)member->type, member->mode,
                member->size >> SIZE_OCTAL_LIMIT_BITS ? 0 : member->size, member->modified_s);
    copy_cut(header.name, path, path_length);
    copy_cut(header.link, member->link, strlen(member->link));
    put_checksum(&header);
    memcpy(out + used, &header, sizeof header);
    return used + sizeof header;
}
