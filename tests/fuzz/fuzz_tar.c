/* SPDX-License-Identifier: Apache-2.0 */
/* Tar archives from strangers, in pieces of any size: texts end, contents add up, clean paths are
 * clean, and what is written reads back. */

#include "wire/tar.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check_member(const struct tar_member *member)
{
    static char header[TAR_HEADER_SIZE];
    static char clean[TAR_PATH_SIZE];

    require(memchr(member->path, '\0', TAR_PATH_SIZE) && memchr(member->link, '\0', TAR_PATH_SIZE));
    if (!tar_clean_path(member->path, clean)) {
        require(*clean && *clean != '/' && strncmp(clean, "../", 3) != 0 &&
                !strstr(clean, "/../") && !strstr(clean, "//"));
        (void)tar_link_problem(clean, member->link);
    }
    require(tar_write_member(header, sizeof(header), member) <= sizeof(header));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tar_parser parser;
    size_t step = size ? data[0] % 61 + 1 : 1;
    uint64_t left = 0;

    tar_parser_init(&parser);
    while (size > 0) {
        size_t length = size < step ? size : step;
        const void *piece = NULL;
        size_t piece_length = 0;
        size_t used = 0;
        enum tar_event event = tar_parser_feed(&parser, data, length, &used, &piece, &piece_length);

        require(used <= length);
        data += used;
        size -= used;
        if (event == TAR_MEMBER) {
            check_member(&parser.member);
            left = parser.member.size;
        } else if (event == TAR_DATA) {
            require(piece_length <= left);
            left -= piece_length;
        } else if (event == TAR_END || event == TAR_BAD) {
            break;
        }
    }
    (void)tar_parser_is_between(&parser);
    return 0;
}
