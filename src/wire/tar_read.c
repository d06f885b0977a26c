/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/tar.h"

#include <string.h>

enum {
    NAME = 0,
    NAME_SIZE = 100,
    MODE = 100,
    UID = 108,
    GID = 116,
    SIZE = 124,
    MODIFIED = 136,
    CHECKSUM = 148,
    TYPE = 156,
    LINK = 157,
    MAGIC = 257,
    PREFIX = 345,
    PREFIX_SIZE = 155,
    SPARSE_GOES_ON = 482,       /* in a GNU sparse header */
    SPARSE_BLOCK_GOES_ON = 504, /* in the blocks behind it */
};

static const uint64_t max_skipped = SIZE_MAX / 4;

enum step { STEP_HEADER, STEP_EXTRA, STEP_SPARSE, STEP_DATA, STEP_PADDING, STEP_END, STEP_BAD };

static enum tar_event fail(struct tar_parser *parser, const char *problem)
{
    parser->step = STEP_BAD;
    parser->problem = problem;
    return TAR_BAD;
}

void tar_parser_init(struct tar_parser *parser)
{
    parser->problem = NULL;
    parser->step = STEP_HEADER;
    parser->filled = 0;
    parser->left = parser->extra_left = 0;
    parser->padding = 0;
    parser->has_path = parser->has_link = parser->has_size = false;
    parser->is_too_long = parser->has_nul = parser->is_sparse = false;
}

bool tar_parser_is_between(const struct tar_parser *parser)
{
    return parser->step == STEP_END || (parser->step == STEP_HEADER && !parser->filled &&
                                        !parser->has_path && !parser->has_link);
}

/* --- fields ---------------------------------------------------------------------------------- */

/* Octal, or binary with the highest bit set. False for any other text and for negative numbers. */
static bool read_number(const unsigned char *field, size_t size, uint64_t *out_value)
{
    uint64_t value = 0;
    size_t i = 0;

    if (field[0] & 0x80) {
        value = field[0] & 0x7f;
        for (i = 1; i < size; i++) {
            if (value >> 55)
                return false;
            value = value << 8 | field[i];
        }
        *out_value = value;
        return !(field[0] & 0x40);
    }
    while (i < size && field[i] == ' ')
        i++;
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++) {
        if (value >> 60)
            return false;
        value = value << 3 | (uint64_t)(field[i] - '0');
    }
    *out_value = value;
    return i == size || !field[i] || field[i] == ' ';
}

static bool checksum_is_right(const unsigned char *block)
{
    uint64_t expected = 0;
    uint64_t sum = 0;
    int64_t signed_sum = 0;

    if (!read_number(block + CHECKSUM, 8, &expected))
        return false;
    for (size_t i = 0; i < TAR_BLOCK; i++) {
        unsigned char byte = i >= CHECKSUM && i < CHECKSUM + 8 ? ' ' : block[i];

        sum += byte;
        signed_sum += (signed char)byte;
    }
    return expected == sum || (signed_sum >= 0 && expected == (uint64_t)signed_sum);
}

static bool is_zero(const unsigned char *block)
{
    for (size_t i = 0; i < TAR_BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

static void set_text(struct tar_parser *parser, char *text, const char *value, size_t length)
{
    if (memchr(value, 0, length))
        parser->has_nul = true;
    if (length >= TAR_PATH_SIZE) {
        parser->is_too_long = true;
        length = TAR_PATH_SIZE - 1;
    }
    memcpy(text, value, length);
    text[length] = 0;
}

static void read_names(struct tar_parser *parser)
{
    const char *block = (const char *)parser->block;
    size_t name_length = strnlen(block + NAME, NAME_SIZE);
    size_t prefix_length = 0;

    if (!memcmp(block + MAGIC, "ustar\0", 6))
        prefix_length = strnlen(block + PREFIX, PREFIX_SIZE);
    if (!parser->has_path) {
        memcpy(parser->path, block + PREFIX, prefix_length);
        if (prefix_length)
            parser->path[prefix_length++] = '/';
        memcpy(parser->path + prefix_length, block + NAME, name_length);
        parser->path[prefix_length + name_length] = 0;
    }
    if (!parser->has_link)
        set_text(parser, parser->link, block + LINK, strnlen(block + LINK, NAME_SIZE));
}

/* --- headers before the header ---------------------------------------------------------------- */

static bool key_is(const char *key, size_t length, const char *wanted)
{
    return strlen(wanted) == length && !memcmp(key, wanted, length);
}

static bool read_decimal(const char *text, size_t length, uint64_t *out_value)
{
    uint64_t value = 0;

    if (!length || length > 18)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *out_value = value;
    return true;
}

static bool take_record(struct tar_parser *parser, const char *key, size_t key_length,
                        const char *value, size_t length)
{
    if (key_is(key, key_length, "path")) {
        set_text(parser, parser->path, value, length);
        parser->has_path = true;
    } else if (key_is(key, key_length, "linkpath")) {
        set_text(parser, parser->link, value, length);
        parser->has_link = true;
    } else if (key_is(key, key_length, "size")) {
        parser->has_size = true;
        return read_decimal(value, length, &parser->size);
    } else if (key_length > 10 && !memcmp(key, "GNU.sparse", 10)) {
        parser->is_sparse = true;
    }
    return true;
}

/* "LENGTH key=value\n", the length being that of the whole record. */
static bool read_records(struct tar_parser *parser)
{
    const char *at = parser->extra;
    const char *end = parser->extra + parser->filled;

    while (at < end) {
        const char *space = memchr(at, ' ', (size_t)(end - at));
        const char *equals;
        uint64_t length;

        if (!space || !read_decimal(at, (size_t)(space - at), &length) ||
            length > (uint64_t)(end - at) || length < (uint64_t)(space - at) + 3 ||
            at[length - 1] != '\n')
            return false;
        equals = memchr(space + 1, '=', (size_t)(at + length - space - 1));
        if (!equals || !take_record(parser, space + 1, (size_t)(equals - space - 1), equals + 1,
                                    (size_t)(at + length - 1 - equals - 1)))
            return false;
        at += length;
    }
    return true;
}

static bool use_extra(struct tar_parser *parser)
{
    size_t length = parser->filled;

    switch (parser->extra_type) {
    case 'x':
        return read_records(parser);
    case 'L':
    case 'K':
        length = strnlen(parser->extra, length);
        set_text(parser, parser->extra_type == 'L' ? parser->path : parser->link, parser->extra,
                 length);
        *(parser->extra_type == 'L' ? &parser->has_path : &parser->has_link) = true;
        return true;
    default:
        return true;
    }
}

/* --- the steps -------------------------------------------------------------------------------- */

static enum tar_event begin_extra(struct tar_parser *parser, char type, uint64_t size)
{
    /* For all members, and says nothing that is asked for: it may be of any length. */
    if (type == 'g' && size <= max_skipped) {
        parser->padding = (size_t)size + tar_padding(size);
        parser->step = STEP_PADDING;
        return TAR_NEED_MORE;
    }
    if (size > TAR_EXTRA_SIZE)
        return fail(parser, "a header is too long");
    parser->extra_type = type;
    parser->extra_left = size;
    parser->padding = tar_padding(size);
    parser->step = STEP_EXTRA;
    return TAR_NEED_MORE;
}

static enum tar_type member_type(char type, const char *path)
{
    size_t length = strlen(path);

    if (type == 0 || type == '7')
        type = '0';
    if (type == '0' && length && path[length - 1] == '/')
        return TAR_DIRECTORY;
    return type >= '0' && type <= '6' ? (enum tar_type)type : TAR_OTHER;
}

static void begin_data(struct tar_parser *parser)
{
    parser->left = parser->has_data ? parser->member.size : 0;
    parser->padding = tar_padding(parser->left);
    parser->step = STEP_DATA;
}

static enum tar_event begin_member(struct tar_parser *parser, uint64_t size)
{
    const unsigned char *block = parser->block;
    char type = (char)block[TYPE];
    uint64_t mode = 0;
    uint64_t modified = 0;
    uint64_t uid = UINT64_MAX;
    uint64_t gid = UINT64_MAX;

    read_names(parser);
    (void)read_number(block + MODE, 8, &mode);
    (void)read_number(block + MODIFIED, 12, &modified);
    if (!read_number(block + UID, 8, &uid))
        uid = UINT64_MAX;
    if (!read_number(block + GID, 8, &gid))
        gid = UINT64_MAX;
    parser->member = (struct tar_member){
        .type = member_type(type, parser->path),
        .mode = (uint32_t)mode & 07777,
        .size = parser->has_size ? parser->size : size,
        .modified_s = modified >> 40 ? 0 : (int64_t)modified,
        .uid = uid,
        .gid = gid,
        .path = parser->path,
        .link = parser->link,
        .is_too_long = parser->is_too_long,
        .has_nul = parser->has_nul,
        .is_sparse = parser->is_sparse || type == 'S',
    };
    /* Links, devices and directories have no content, regardless of their size. */
    parser->has_data = parser->member.type == TAR_FILE || parser->member.type == TAR_OTHER;
    parser->has_path = parser->has_link = parser->has_size = false;
    parser->is_too_long = parser->has_nul = parser->is_sparse = false;
    if (type == 'S' && block[SPARSE_GOES_ON])
        parser->step = STEP_SPARSE;
    else
        begin_data(parser);
    return TAR_MEMBER;
}

static enum tar_event take_header(struct tar_parser *parser)
{
    char type = (char)parser->block[TYPE];
    uint64_t size;

    if (is_zero(parser->block)) {
        parser->step = STEP_END;
        return TAR_END;
    }
    if (!checksum_is_right(parser->block))
        return fail(parser, "a header is damaged, or this is not a tar archive");
    if (!read_number(parser->block + SIZE, 12, &size))
        return fail(parser, "the size of a member is negative or not a number");
    if (type == 'x' || type == 'g' || type == 'L' || type == 'K')
        return begin_extra(parser, type, size);
    return begin_member(parser, size);
}

/* Fills the block; true when it is complete. */
static bool fill_block(struct tar_parser *parser, const char *data, size_t length, size_t *used)
{
    size_t wanted = TAR_BLOCK - parser->filled;
    size_t count = length - *used < wanted ? length - *used : wanted;

    memcpy(parser->block + parser->filled, data + *used, count);
    *used += count;
    parser->filled += count;
    if (parser->filled < TAR_BLOCK)
        return false;
    parser->filled = 0;
    return true;
}

static enum tar_event step_extra(struct tar_parser *parser, const char *data, size_t length,
                                 size_t *used)
{
    size_t room = length - *used;
    size_t count = parser->extra_left < room ? (size_t)parser->extra_left : room;

    memcpy(parser->extra + parser->filled, data + *used, count);
    *used += count;
    parser->filled += count;
    parser->extra_left -= count;
    if (parser->extra_left)
        return TAR_NEED_MORE;
    if (!use_extra(parser))
        return fail(parser, "an extended header is malformed");
    parser->filled = 0;
    parser->extra_type = 0;
    parser->step = STEP_PADDING;
    return TAR_NEED_MORE;
}

static enum tar_event step_data(struct tar_parser *parser, const char *data, size_t length,
                                size_t *used, const void **out_piece, size_t *out_length)
{
    size_t room = length - *used;
    size_t count = parser->left < room ? (size_t)parser->left : room;

    if (!parser->left) {
        parser->step = STEP_PADDING;
        return TAR_MEMBER_END;
    }
    if (!count)
        return TAR_NEED_MORE;
    *out_piece = data + *used;
    *out_length = count;
    *used += count;
    parser->left -= count;
    return TAR_DATA;
}

static void step_padding(struct tar_parser *parser, size_t length, size_t *used)
{
    size_t room = length - *used;
    size_t count = parser->padding < room ? parser->padding : room;

    *used += count;
    parser->padding -= count;
    if (!parser->padding)
        parser->step = STEP_HEADER;
}

enum tar_event tar_parser_feed(struct tar_parser *parser, const void *data, size_t length,
                               size_t *out_used, const void **out_piece, size_t *out_length)
{
    enum tar_event event = TAR_NEED_MORE;
    size_t used = 0;

    while (event == TAR_NEED_MORE) {
        unsigned step = parser->step;

        if (step == STEP_BAD)
            event = TAR_BAD;
        else if (step == STEP_END)
            event = TAR_END;
        else if (step == STEP_DATA)
            event = step_data(parser, data, length, &used, out_piece, out_length);
        else if (step == STEP_PADDING && !parser->padding)
            parser->step = STEP_HEADER;
        else if (step == STEP_EXTRA && !parser->extra_left)
            event = step_extra(parser, data, length, &used);
        else if (used == length)
            break;
        else if (step == STEP_EXTRA)
            event = step_extra(parser, data, length, &used);
        else if (step == STEP_PADDING)
            step_padding(parser, length, &used);
        else if (fill_block(parser, data, length, &used) && step == STEP_HEADER)
            event = take_header(parser);
        else if (step == STEP_SPARSE && !parser->filled && !parser->block[SPARSE_BLOCK_GOES_ON])
            begin_data(parser);
        if (event == TAR_NEED_MORE && step == STEP_DATA)
            break;
    }
    *out_used = used;
    return event;
}

/* --- safe paths ---------------------------------------------------------------------------- */

const char *tar_clean_path(const char *path, char *out)
{
    size_t filled = 0;

    if (*path == '/')
        return "the path is absolute";
    if (strlen(path) >= TAR_PATH_SIZE)
        return "the path is too long";
    while (*path) {
        size_t length = strcspn(path, "/");

        if (length == 2 && !memcmp(path, "..", 2))
            return "the path leads out of the directory";
        if (length > 255)
            return "a name in the path is too long";
        if (length && !(length == 1 && *path == '.')) {
            if (filled)
                out[filled++] = '/';
            memcpy(out + filled, path, length);
            filled += length;
        }
        path += length;
        path += *path == '/';
    }
    out[filled] = 0;
    return filled ? NULL : "the path is empty";
}

/* Decides by the texts alone: the depth of the link, and how far up and down its target goes from
 * there. */
const char *tar_link_problem(const char *path, const char *target)
{
    long depth = 0;

    if (!*target)
        return "the link leads nowhere";
    if (*target == '/')
        return "the link leads to an absolute path";
    for (; *path; path++)
        depth += *path == '/';
    while (*target) {
        size_t length = strcspn(target, "/");

        if (length == 2 && !memcmp(target, "..", 2))
            depth--;
        else if (length && !(length == 1 && *target == '.'))
            depth++;
        if (depth < 0)
            return "the link leads out of the directory";
        target += length;
        target += *target == '/';
    }
    return NULL;
}
