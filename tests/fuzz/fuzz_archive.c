/* Archives of templates: names and targets end, and the reader comes to an end. */

#include "backend/native/archive.h"

#include <stdlib.h>
#include <string.h>

struct memory {
    const uint8_t *data;
    size_t left;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static ssize_t read_memory(void *user, void *bytes, size_t length)
{
    struct memory *memory = user;
    size_t part = length < memory->left ? length : memory->left;

    memcpy(bytes, memory->data, part);
    memory->data += part;
    memory->left -= part;
    return (ssize_t)part;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct archive archive;
    struct memory memory = { data, size };
    struct error err = { 0 };
    char bytes[4096];

    archive_init(&archive, read_memory, &memory);
    while (archive_next(&archive, &err) > 0) {
        if (!memchr(archive.entry.name, '\0', ARCHIVE_NAME_SIZE) ||
            !memchr(archive.entry.target, '\0', ARCHIVE_NAME_SIZE))
            abort();
        if (archive.entry.size % 3 == 0)
            while (archive_read(&archive, bytes, sizeof(bytes), &err) > 0)
                continue;
    }
    return 0;
}
