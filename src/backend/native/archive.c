#include "backend/native/archive.h"

#include "base/macros.h"

#include <string.h>

enum { MAX_EXTENSION = 64 * 1024, CHECKSUM_PLACE = 148, CHECKSUM_LENGTH = 8 };

static const uint64_t max_size = (uint64_t)1 << 50;

struct header {
    char name[100];
    char mode[8];
    char uid[8];
    char gid[8];
    char size[12];
    char modified[12];
    char checksum[8];
    char type;
    char target[100];
    char magic[8];
    char user[32];
    char group[32];
    char device[16];
    char prefix[155];
    char padding[12];
};

_Static_assert(sizeof(struct header) == ARCHIVE_BLOCK, "a header is one block");

/* What long-name and pax entries say about the entry that follows them. */
struct extension {
    char name[ARCHIVE_NAME_SIZE];
    char target[ARCHIVE_NAME_SIZE];
    uint64_t size;
    bool has_name, has_target, has_size;
};

void archive_init(struct archive *reader, archive_source_fn *source, void *user)
{
    *reader = (struct archive){ .source = source, .user = user };
}

/* --- bytes --------------------------------------------------------------------------------- */

/* All of it: 1, nothing at all: 0, anything in between: -1. */
static int read_full(struct archive *reader, void *bytes, size_t length, struct error *err)
{
    size_t used = 0;

    while (used < length) {
        ssize_t got = reader->source(reader->user, (char *)bytes + used, length - used);

        if (got < 0)
            return error_set(err, ERR_INVALID, "the archive cannot be read");
        if (got == 0)
            return used == 0 ? 0 : error_set(err, ERR_INVALID, "the archive is truncated");
        used += (size_t)got;
    }
    return 1;
}

static int skip(struct archive *reader, uint64_t length, struct error *err)
{
    char bytes[16384];

    while (length > 0) {
        size_t part = (size_t)MIN(length, (uint64_t)sizeof(bytes));

        if (read_full(reader, bytes, part, err) != 1)
            return error_set(err, ERR_INVALID, "the archive is truncated");
        length -= part;
    }
    return 0;
}

ssize_t archive_read(struct archive *reader, void *bytes, size_t length, struct error *err)
{
    size_t part = (size_t)MIN((uint64_t)length, reader->left);

    if (part == 0)
        return 0;
    if (read_full(reader, bytes, part, err) != 1)
        return error_set(err, ERR_INVALID, "the archive is truncated");
    reader->left -= part;
    return (ssize_t)part;
}

/* --- fields -------------------------------------------------------------------------------- */

/* Octal digits, or the binary form that GNU tar uses for large numbers. */
static int parse_number(const char *field, size_t length, uint64_t *out_value)
{
    uint64_t value = 0;
    size_t i = 0;

    if ((unsigned char)field[0] == 0x80) {
        for (i = 1; i < length; i++) {
            if (value >> 55)
                return -1;
            value = value << 8 | (unsigned char)field[i];
        }
        *out_value = value;
        return 0;
    }
    while (i < length && field[i] == ' ')
        i++;
    for (; i < length && field[i] >= '0' && field[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(field[i] - '0');
    if (i < length && field[i] != '\0' && field[i] != ' ')
        return -1;
    *out_value = value;
    return 0;
}

static bool has_checksum(const struct header *header)
{
    const unsigned char *bytes = (const unsigned char *)header;
    uint64_t wanted;
    uint64_t sum = 0;

    for (size_t i = 0; i < sizeof(*header); i++) {
        bool own = i >= CHECKSUM_PLACE && i < CHECKSUM_PLACE + CHECKSUM_LENGTH;

        sum += own ? ' ' : bytes[i];
    }
    return parse_number(header->checksum, sizeof(header->checksum), &wanted) == 0 && sum == wanted;
}

static bool is_zero(const struct header *header)
{
    const char *bytes = (const char *)header;

    for (size_t i = 0; i < sizeof(*header); i++) {
        if (bytes[i])
            return false;
    }
    return true;
}

static void copy_text(char out[ARCHIVE_NAME_SIZE], const char *field, size_t length)
{
    size_t used = strnlen(field, length);

    memcpy(out, field, used);
    out[used] = '\0';
}

static void copy_name(const struct header *header, char out[ARCHIVE_NAME_SIZE])
{
    size_t used = 0;

    if (memcmp(header->magic, "ustar", 6) == 0 && header->prefix[0]) {
        copy_text(out, header->prefix, sizeof(header->prefix));
        used = strlen(out);
        out[used++] = '/';
    }
    copy_text(out + used, header->name, sizeof(header->name));
}

/* --- extensions ---------------------------------------------------------------------------- */

static int set_text(char out[ARCHIVE_NAME_SIZE], bool *out_present, const char *text, size_t length)
{
    if (length >= ARCHIVE_NAME_SIZE || memchr(text, '\0', length))
        return -1;
    memcpy(out, text, length);
    out[length] = '\0';
    *out_present = true;
    return 0;
}

static int set_size(struct extension *extension, const char *text, size_t length)
{
    uint64_t value = 0;

    if (length == 0 || length > 16)
        return -1;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    extension->size = value;
    extension->has_size = true;
    return 0;
}

static int use_pair(struct extension *extension, const char *key, size_t key_length,
                    const char *value, size_t length)
{
    if (key_length == 4 && memcmp(key, "path", 4) == 0)
        return set_text(extension->name, &extension->has_name, value, length);
    if (key_length == 8 && memcmp(key, "linkpath", 8) == 0)
        return set_text(extension->target, &extension->has_target, value, length);
    if (key_length == 4 && memcmp(key, "size", 4) == 0)
        return set_size(extension, value, length);
    return 0;
}

/* Records "LENGTH KEY=VALUE\n", where the length counts itself. */
static int parse_pax(struct extension *extension, const char *text, size_t length)
{
    while (length > 0) {
        size_t record = 0;
        size_t digits = 0;
        const char *equals;

        while (digits < length && digits < 7 && text[digits] >= '0' && text[digits] <= '9')
            record = record * 10 + (size_t)(text[digits++] - '0');
        if (digits == 0 || record <= digits + 1 || record > length || text[digits] != ' ' ||
            text[record - 1] != '\n')
            return -1;
        equals = memchr(text + digits + 1, '=', record - digits - 2);
        if (!equals ||
            use_pair(extension, text + digits + 1, (size_t)(equals - (text + digits + 1)),
                     equals + 1, (size_t)(text + record - 1 - (equals + 1))) < 0)
            return -1;
        text += record;
        length -= record;
    }
    return 0;
}

static int read_extension(struct archive *reader, char type, uint64_t size,
                          struct extension *extension, struct error *err)
{
    static char text[MAX_EXTENSION];
    size_t length;
    int result;

    if (size > sizeof(text))
        return error_set(err, ERR_INVALID, "the archive has a header that is too long");
    if (size > 0 && read_full(reader, text, (size_t)size, err) != 1)
        return error_set(err, ERR_INVALID, "the archive is truncated");
    if (skip(reader, -size % ARCHIVE_BLOCK, err) < 0)
        return -1;
    length = type == 'x' ? (size_t)size : strnlen(text, (size_t)size);
    if (type == 'x')
        result = parse_pax(extension, text, length);
    else if (type == 'L')
        result = set_text(extension->name, &extension->has_name, text, length);
    else
        result = set_text(extension->target, &extension->has_target, text, length);
    return result < 0 ? error_set(err, ERR_INVALID, "the archive has a malformed header") : 0;
}

/* --- entries ------------------------------------------------------------------------------- */

static enum archive_kind kind_of(char type)
{
    switch (type) {
    case '0':
    case '\0':
    case '7':
        return ARCHIVE_FILE;
    case '1':
        return ARCHIVE_HARD_LINK;
    case '2':
        return ARCHIVE_SYMBOLIC_LINK;
    case '5':
        return ARCHIVE_DIRECTORY;
    case '6':
        return ARCHIVE_FIFO;
    default:
        return ARCHIVE_OTHER;
    }
}

static int fill_entry(struct archive *reader, const struct header *header,
                      const struct extension *extension, struct error *err)
{
    struct archive_entry *entry = &reader->entry;
    uint64_t mode;
    uint64_t modified;
    size_t length;

    entry->kind = kind_of(header->type);
    if (parse_number(header->size, sizeof(header->size), &entry->size) < 0 ||
        parse_number(header->mode, sizeof(header->mode), &mode) < 0 ||
        parse_number(header->uid, sizeof(header->uid), &entry->uid) < 0 ||
        parse_number(header->gid, sizeof(header->gid), &entry->gid) < 0)
        return error_set(err, ERR_INVALID, "the archive has a malformed header");
    if (parse_number(header->modified, sizeof(header->modified), &modified) < 0)
        modified = 0;
    entry->mode = (uint32_t)mode & 07777;
    entry->modified = (int64_t)MIN(modified, max_size);
    copy_name(header, entry->name);
    copy_text(entry->target, header->target, sizeof(header->target));
    if (extension->has_name)
        memcpy(entry->name, extension->name, sizeof(entry->name));
    if (extension->has_target)
        memcpy(entry->target, extension->target, sizeof(entry->target));
    if (extension->has_size)
        entry->size = extension->size;
    if (entry->kind != ARCHIVE_FILE && entry->kind != ARCHIVE_OTHER)
        entry->size = 0;
    if (entry->size > max_size)
        return error_set(err, ERR_INVALID, "the archive has a file of an impossible size");
    /* Older archives mark a directory by its name alone. */
    length = strlen(entry->name);
    if (entry->kind == ARCHIVE_FILE && length > 0 && entry->name[length - 1] == '/')
        entry->kind = ARCHIVE_DIRECTORY;
    reader->left = entry->size;
    reader->padding = -entry->size % ARCHIVE_BLOCK;
    return 1;
}

int archive_next(struct archive *reader, struct error *err)
{
    static struct extension extension;
    struct header header;

    extension.has_name = extension.has_target = extension.has_size = false;
    if (skip(reader, reader->left, err) < 0 || skip(reader, reader->padding, err) < 0)
        return -1;
    reader->left = reader->padding = 0;
    for (;;) {
        uint64_t size;
        int got = read_full(reader, &header, sizeof(header), err);

        if (got <= 0)
            return got;
        if (is_zero(&header))
            return 0;
        if (!has_checksum(&header))
            return error_set(err, ERR_INVALID, "this is not a tar archive, or it is damaged");
        if (header.type != 'x' && header.type != 'L' && header.type != 'K' && header.type != 'g')
            return fill_entry(reader, &header, &extension, err);
        if (parse_number(header.size, sizeof(header.size), &size) < 0 || size > max_size)
            return error_set(err, ERR_INVALID, "the archive has a malformed header");
        if (header.type == 'g') {
            if (skip(reader, size + -size % ARCHIVE_BLOCK, err) < 0)
                return -1;
        } else if (read_extension(reader, header.type, size, &extension, err) < 0) {
            return -1;
        }
    }
}
