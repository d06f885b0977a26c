/* SPDX-License-Identifier: Apache-2.0 */
/* What a binary message is read as can be written, and is then read as the same. JSON that is made
 * canonical stays so. */

#include "wire/json.h"
#include "wire/protobuf.h"

#include <assert.h>
#include <stdlib.h>

static const struct protobuf_name names[] = { { "ZERO", 0 }, { "ONE", 1 }, { 0 } };

static const struct protobuf_field inner[] = {
    { 1, "text", PROTOBUF_TEXT },
    { 2, "texts", PROTOBUF_TEXT, .is_repeated = true },
    { 3, "map", PROTOBUF_TEXT_MAP },
    { 4, "bytes", PROTOBUF_BYTES },
    { 5, "modifiedTime", PROTOBUF_TIMESTAMP },
    { 0 },
};

static const struct protobuf_field fields[] = {
    { 1, "inner", PROTOBUF_MESSAGE, .fields = inner },
    { 2, "many", PROTOBUF_MESSAGE, .is_repeated = true, .fields = inner },
    { 3, "flag", PROTOBUF_BOOL },
    { 4, "count", PROTOBUF_UINT32 },
    { 5, "exitCode", PROTOBUF_SINT32 },
    { 6, "size", PROTOBUF_INT64 },
    { 7, "name", PROTOBUF_ENUM, .names = names },
    { 0 },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const json_t *message)
{
    scoped(buffer_fini) struct buffer bytes = BUFFER_INIT(1024 * 1024);
    scoped(json_decref) json_t *again = NULL;
    struct error err = { 0 };

    if (protobuf_encode(fields, message, &bytes, &err) < 0) {
        assert(err.code);
        return;
    }
    again = protobuf_decode(fields, bytes.data, bytes.length, &err);
    assert(again);
}

static void check_binary(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    scoped(json_decref) json_t *message = protobuf_decode(fields, data, size, &err);
    scoped(json_decref) json_t *canonical = NULL;

    if (!message) {
        assert(err.message[0]);
        return;
    }
    canonical = protobuf_canonical(fields, message, &err);
    assert(canonical && json_equal(canonical, message));
    check_again(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    scoped(json_decref) json_t *json = json_read(data, size, NULL);
    scoped(json_decref) json_t *canonical = json ? protobuf_canonical(fields, json, NULL) : NULL;

    check_binary(data, size);
    if (canonical)
        check_again(canonical);
    return 0;
}
