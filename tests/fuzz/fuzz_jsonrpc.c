/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever is taken for a message can be answered, and the answer is a message again. */

#include "wire/jsonrpc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void check_answer(const char *id, int code, const char *message)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    scoped(jsonrpc_message_fini) struct jsonrpc_message answer;
    struct error err = { 0 };

    jsonrpc_write_error(&json, id, code, message, NULL);
    assert(jsonrpc_read(text.data, text.length, &answer, &err) == 0);
    assert(answer.kind == JSONRPC_RESPONSE);
    assert(!id == !answer.id && (!id || strcmp(id, answer.id) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    scoped(jsonrpc_message_fini) struct jsonrpc_message message;
    struct error err = { 0 };
    int code = jsonrpc_read(data, size, &message, &err);

    if (code == 0) {
        assert((message.kind == JSONRPC_REQUEST) <= (message.id != NULL));
        assert(message.kind != JSONRPC_NOTIFICATION || !message.id);
        assert((message.kind == JSONRPC_RESPONSE) == !message.method);
    } else {
        assert(err.message[0]);
    }
    check_answer(message.id, code ? code : JSONRPC_METHOD_NOT_FOUND, err.message);
    return 0;
}
